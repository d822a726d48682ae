"""Stop when decided: once no outcome of the rest can change what gates make of a run, nothing more starts.

With a confidence, a sequential test decides earlier. It needs the rollouts in an order that has nothing to do with
their outcomes: they are shuffled, and only those count that come before the first one without an outcome, however
long each takes. Errors and skips speak neither for nor against a rate.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.core.errors import HeldBack
from pytest_benchflow.jobs.bounds import Counts, certainty
from pytest_benchflow.jobs.gates import Gate, Labels
from pytest_benchflow.jobs.metrics import Outcome, seconds_of
from pytest_benchflow.jobs.sequential import SequentialTest
from pytest_benchflow.jobs.statistics import mean

if TYPE_CHECKING:
    from pytest_benchflow.jobs.ledger import JobEvent
    from pytest_benchflow.rollout import RolloutConfig

_TESTED = ("pass_rate", "mean_reward")
_HIGH, _LOW = (">=", ">"), ("<=", "<")


class Planned(NamedTuple):
    """A rollout of the run, in the order in which they are to start."""

    key: str
    labels: Labels
    may_rerun: bool = False
    """Whether it runs again if it does not pass: its outcome is open until it does."""


@dataclass(frozen=True, slots=True)
class EarlyVerdict:
    """What a sequential test says of a gate."""

    holds: bool
    seen: int
    population: int
    confidence: float

    def __str__(self) -> str:
        return f"certain to {self.confidence * 100:g}% after {self.seen} of {self.population}"


class Saved(BaseModel):
    """What did not have to run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rollouts: int
    of: int = Field(description="how many the run would have had")
    cost_usd: float | None = Field(description="what they would have cost, going by those that ran")
    seconds: float = Field(description="how long they would have taken, added up, going by those that ran")


class _Watch:
    """One gate: what is known of it, and its test if it has one."""

    def __init__(self, gate: Gate, confidence: float | None, n_tests: int) -> None:
        self.gate = gate
        self.counts = Counts()
        self.exact: bool | None = None
        self.tested: EarlyVerdict | None = None
        self._confidence = confidence if confidence is not None and is_tested(gate) else None
        self._error = 1.0 if confidence is None else (1 - confidence) / max(1, n_tests)
        self._labels: dict[str, Labels] = {}
        self._ended: dict[str, float] = {}
        self._coming: deque[str] = deque()
        self._test: SequentialTest | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the gate passes, if that is settled."""
        return self.exact if self.tested is None else self.tested.holds

    def begin(self, planned: Iterable[Planned]) -> None:
        """Learn which rollouts there are."""
        mine = [one for one in planned if self.gate.wants(one.labels)]
        self._labels = {one.key: one.labels for one in mine}
        for one in mine:
            self.counts.expect(one.labels.trial_of)
        if self._confidence is not None:
            self._coming = deque(self._labels)
            self._test = SequentialTest(len(mine), self.gate.limit, self._error)

    def add(self, key: str, status: str, reward: float | None) -> bool:
        """Take an outcome; return whether the gate is about it. Of several of one rollout the first counts."""
        labels = self._labels.get(key)
        if labels is None or key in self._ended:
            return False
        self.counts.add(labels.trial_of, status, reward)
        self._ended[key] = self._value(status, reward)
        return True

    def spend(self, event: JobEvent) -> None:
        """Take what an attempt used; of those before the last one only what was paid counts."""
        if event.key not in self._labels:
            return
        is_free = event.agent in FREE_AGENTS or event.status == "skipped"
        # A judge has its price whoever is judged; where that is not known, the cost is partial.
        self.counts.spend("cost_usd", 0.0 if is_free and event.cost_usd is None else event.cost_usd)
        self.counts.spend("tokens", 0.0 if is_free else event.tokens)
        if event.cost_is_partial:
            self.counts.untold.add("cost_usd")
        if event.kind == "end":
            self.counts.spend("tool_calls", event.tool_calls)
            self.counts.spend("seconds", event.seconds)
            self.counts.spend("integrity_findings", event.integrity_findings)

    def settle(self) -> None:
        """Work out whether the gate is decided."""
        if self.exact is None and self._labels:
            self.exact = certainty(self.gate, self.counts)
        test = self._test
        if test is None or self._confidence is None or self.tested is not None or not self.counts.is_on_scale:
            return
        while self._coming and self._coming[0] in self._ended and test.verdict is None:
            test.add(self._ended[self._coming.popleft()])
        if test.verdict is not None:
            holds = (test.verdict == "above") == (self.gate.symbol in _HIGH)
            self.tested = EarlyVerdict(holds, test.n, test.population, self._confidence)

    def _value(self, status: str, reward: float | None) -> float:
        """Return a value whose mean reaches the limit if and only if the rate over what was scored does."""
        if status not in ("passed", "failed"):
            return self.gate.limit
        return float(status == "passed") if self.gate.metric == "pass_rate" else min(1.0, max(0.0, reward or 0.0))


def is_tested(gate: Gate) -> bool:
    """Return whether a sequential test can decide a gate."""
    return gate.metric in _TESTED and gate.symbol in (*_HIGH, *_LOW) and 0 <= gate.limit <= 1


class StopWhenDecided:
    """A `StartRule`: nothing more starts once every gate is decided, or one that blocks has failed."""

    def __init__(self, gates: Sequence[Gate], *, confidence: float | None = None, report_only: bool = False) -> None:
        self._report_only = report_only
        n_tests = sum(map(is_tested, gates))
        self._watches = [_Watch(gate, confidence, n_tests) for gate in gates]
        self._may_rerun: frozenset[str] = frozenset()
        self._is_new = True
        self._reason: str | None = None

    def begin(self, planned: Sequence[Planned]) -> None:
        """Learn all rollouts of the run, in the order in which they are to start."""
        self._may_rerun = frozenset(one.key for one in planned if one.may_rerun)
        for watch in self._watches:
            watch.begin(planned)

    def learn(self, event: JobEvent) -> None:
        """Take an event of the job's ledger."""
        is_open = event.key in self._may_rerun and event.status != "passed"
        if event.kind == "retry" or (event.kind == "end" and is_open):
            for watch in self._watches:
                watch.spend(event)
        elif event.kind == "end" and event.status is not None and not (event.refused and event.status == "skipped"):
            self.add(event.key, event.status, event.reward, event)

    def add(self, key: str, status: str, reward: float | None, event: JobEvent | None = None) -> None:
        """Take the outcome of a rollout; one that was cancelled has none."""
        if status == "cancelled":
            return
        for watch in self._watches:
            if watch.add(key, status, reward):
                self._is_new = True
                if event is not None:
                    watch.spend(event)

    def refusal(self, config: RolloutConfig) -> HeldBack | None:
        """Return that all is decided, if it is."""
        if self._is_new and self._reason is None:
            self._is_new = False
            self._reason = self._decision()
        return None if self._reason is None else HeldBack(self._reason, "decided")

    @property
    def tests(self) -> dict[Gate, EarlyVerdict]:
        """What sequential tests have decided that is not certain anyway."""
        self._decision()
        return {watch.gate: watch.tested for watch in self._watches if watch.tested is not None}

    def _decision(self) -> str | None:
        for watch in self._watches:
            watch.settle()
        failed = [] if self._report_only else [watch for watch in self._watches if watch.holds is False]
        settled = failed or [watch for watch in self._watches if watch.holds is not None]
        if not settled or (not failed and len(settled) < len(self._watches)):
            return None
        each = ", ".join(
            f"{watch.gate} {'passes' if watch.holds else 'fails'}"
            + (f" ({watch.tested})" if watch.exact is None and watch.tested is not None else "")
            for watch in settled
        )
        is_exact = all(watch.exact is not None for watch in settled)
        return f"decided: {each}" + (", whatever the rest would give" if is_exact else "")


def early_verdicts(
    gates: Sequence[Gate], outcomes: Sequence[Outcome], confidence: float
) -> Mapping[Gate, EarlyVerdict]:
    """Return what sequential tests say of a run that is over; outcomes are in the order in which they were to start.

    The same as while it ran: a verdict of a test never changes.
    """
    rule = StopWhenDecided(gates, confidence=confidence)
    counted = [one for one in outcomes if one.status != "quarantined"]
    rule.begin([Planned(one.id, Labels.of(one.result)) for one in counted])
    for one in counted:
        if one.result.held_back is None:
            rule.add(one.id, one.status, one.result.reward)
    return rule.tests


def saved_by_stopping(outcomes: Sequence[Outcome]) -> Saved | None:
    """Return what did not have to run because everything was decided, None if that is nothing."""
    held = [one.result for one in outcomes if one.result.held_back == "decided"]
    ran = [one.result for one in outcomes if one.result.held_back is None and one.result.rollout_name]
    if not held:
        return None
    cost: float | None = 0.0
    seconds = 0.0
    for (agent, model), n in Counter((result.agent, result.model) for result in held).items():
        alike = [each for each in ran if (each.agent, each.model) == (agent, model)] or ran
        each_cost = mean([each.cost_usd for each in alike if each.cost_usd is not None])
        cost = None if cost is None or each_cost is None else cost + n * each_cost
        seconds += n * (mean([seconds_of(each) for each in alike]) or 0.0)
    return Saved(rollouts=len(held), of=len(outcomes), cost_usd=cost, seconds=seconds)
