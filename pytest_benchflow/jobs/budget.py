"""The budget of a run: what is spent, what is under way, and whether one more rollout may start.

A rule of the job. It learns from the ledger, so that all processes of a run spend from one purse. Attempts count as
well as results; what still runs, or has ended without telling all that it cost, is taken for as dear as what has
ended, and before that for a guess by its price.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.core.errors import HeldBack, UsageError
from pytest_benchflow.providers import Prices, has_list

if TYPE_CHECKING:
    from pytest_benchflow.jobs.ledger import JobEvent
    from pytest_benchflow.rollout import RolloutConfig

GUESSED_INPUT, GUESSED_CACHED, GUESSED_OUTPUT = 500_000, 400_000, 10_000
"""Tokens of a rollout, as long as none of its kind has ended."""

Kind: TypeAlias = "tuple[str | None, str | None]"


class Budget:
    """A `StartRule`: no rollout starts that the rest of the money will not pay for."""

    def __init__(self, limit: float, guess: Callable[[str | None, str | None], float | None]) -> None:
        self.limit = limit
        self._guess = guess
        self._spent: list[float] = []
        self._is_estimated = False
        self._running: dict[str, Kind] = {}
        self._known: dict[Kind, list[float]] = {}

    @property
    def spent(self) -> float:
        """What has been paid."""
        return math.fsum(self._spent)

    def learn(self, event: JobEvent) -> None:
        """Take an event of the job's ledger."""
        if event.kind == "start":
            self._running[event.key] = event.agent, event.model
        elif event.kind in ("end", "retry") and event.key in self._running and not event.reused:
            kind = self._running.pop(event.key)
            is_untold = event.cost_usd is None and (event.tokens is not None or bool(event.tool_calls))
            if event.cost_is_partial or is_untold:
                self._is_estimated = True
                self._spent.append(max(event.cost_usd or 0.0, self._estimate(kind)))
            elif event.cost_usd is not None:
                self._known.setdefault(kind, []).append(event.cost_usd)
                self._spent.append(event.cost_usd)

    def refusal(self, config: RolloutConfig) -> HeldBack | None:
        """Return that the money is spent, or that the rest would not pay for this one either."""
        kind = self._kind(config)
        if self._is_free(kind):
            return None
        left = self.limit - self.spent
        if left > 0 and (self._running or left >= self._estimate(kind) or not self._spent):
            return None
        about = "about " if self._is_estimated else ""
        return HeldBack(f"budget: {about}${self.spent:.2f} of ${self.limit:.2f} are spent", "budget")

    def must_wait(self, config: RolloutConfig) -> bool:
        """Return whether what is under way may need the money; once it has ended, more is known."""
        kind = self._kind(config)
        if self._is_free(kind) or not self._running:
            return False
        under_way = math.fsum(map(self._estimate, self._running.values()))
        return self.spent + under_way + self._estimate(kind) > self.limit

    def _estimate(self, kind: Kind) -> float:
        known = self._known.get(kind)
        if known:
            return math.fsum(known) / len(known)
        return 0.0 if kind[0] in FREE_AGENTS else self._guess(*kind) or 0.0

    def _is_free(self, kind: Kind) -> bool:
        """Return whether rollouts of a kind cost nothing, as far as is known: those of the oracle may have a judge."""
        return kind[0] in FREE_AGENTS and not any(self._known.get(kind, ()))

    def _kind(self, config: RolloutConfig) -> Kind:
        return config.primary_agent, config.primary_model


def guess_by(prices: Prices) -> Callable[[str | None, str | None], float | None]:
    """Return what a rollout of an agent and a model is taken to cost before one has ended."""

    def guess(agent: str | None, model: str | None) -> float | None:
        tokens = {"input": GUESSED_INPUT, "output": GUESSED_OUTPUT, "cached": GUESSED_CACHED}
        return prices.cost(agent or "", [model], **tokens)

    return guess


def require_prices(prices: Prices, players: set[tuple[str, str | None]], option: str = "--bf-max-cost") -> None:
    """Refuse a budget for models whose price nobody knows: an unknown price is not nothing."""
    unknown = [
        f"{agent} with {model or 'its own model'}"
        for agent, model in sorted(players, key=str)
        if agent not in FREE_AGENTS and guess_by(prices)(agent, model) is None
    ]
    if unknown:
        advice = "name them by --bf-price MODEL=IN/OUT, or by AGENT=IN/OUT for an agent's own model"
        if not has_list():
            advice += ", or pip install 'pytest-benchflow[prices]'"
        raise UsageError(f"{option}: the price of {', '.join(unknown)} is not known", advice=advice)
