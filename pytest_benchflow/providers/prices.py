"""What model calls cost: by prices that the user names, else by the list of `genai-prices`, without a network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.providers.providers import provider_of_bare, split_model

_FORM = "write MODEL=IN/OUT or MODEL=IN/OUT/CACHED in dollars per million tokens, for example gpt-5=1.25/10/0.125"
AUTO = "auto"
"""Among prices, stands for the list."""
_LIST_NAMES = {"gemini": "google"}


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens; cached ones are part of the input."""

    input: float
    output: float
    cached: float

    def cost(self, input: int, output: int, cached: int) -> float:
        """Return what these tokens cost."""
        cached = min(cached, input)
        return ((input - cached) * self.input + cached * self.cached + output * self.output) / 1e6


class Prices:
    """The prices of a run."""

    def __init__(self, own: Mapping[str, Price] | None = None, *, uses_list: bool = True) -> None:
        self._own = own or {}
        self._uses_list = uses_list

    @classmethod
    def read(cls, texts: Sequence[str], source: str = "--bf-price") -> Prices:
        """Return the prices that options name; `auto` among them stands for the list."""
        own = dict(_parse(text, source) for text in texts if text != AUTO)
        return cls(own, uses_list=AUTO in texts)

    def cost(
        self,
        agent: str,
        models: Iterable[str | None],
        *,
        input: int | None,
        output: int | None,
        cached: int | None = None,
    ) -> float | None:
        """Return what tokens of an agent cost, None if that is not known; of several models the dearest counts."""
        if input is None and output is None:
            return None
        tokens = input or 0, output or 0, cached or 0
        costs = [self._of_model(agent, model, *tokens) for model in dict.fromkeys(models)] or [
            self._of_model(agent, None, *tokens)
        ]
        known = [cost for cost in costs if cost is not None]
        return max(known) if known and len(known) == len(costs) else None

    def named_cost(self, names: Iterable[str | None], input: int, output: int, cached: int) -> float | None:
        """Return what tokens cost by the first of these names that the user has given a price, None without one."""
        for name in names:
            if name is not None and name in self._own:
                return self._own[name].cost(input, output, cached)
        return None

    def _of_model(self, agent: str, model: str | None, input: int, output: int, cached: int) -> float | None:
        names = (model, None if model is None else split_model(model)[1], agent)
        if (own := self.named_cost(names, input, output, cached)) is not None:
            return own
        return _by_list(model, input, output, cached) if model is not None and self._uses_list else None


def _by_list(model: str, input: int, output: int, cached: int) -> float | None:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    usage = Usage(input_tokens=input, output_tokens=output, cache_read_tokens=min(cached, input))
    provider, bare = split_model(model)
    likely = provider_of_bare(bare)
    names = [None if each is None else _LIST_NAMES.get(each.name, each.name) for each in (provider, likely, None)]
    for name in dict.fromkeys(names):
        try:
            return float(calc_price(usage, bare.rpartition("/")[2], provider_id=name).total_price)
        except (LookupError, ValueError):
            continue
    return None


def has_list() -> bool:
    """Return whether the list of prices is installed."""
    from importlib.util import find_spec

    return find_spec("genai_prices") is not None


def _parse(text: str, source: str) -> tuple[str, Price]:
    model, equals, numbers = text.rpartition("=")
    try:
        parts = [float(part) for part in numbers.split("/")]
    except ValueError:
        parts = []
    if not equals or not model or len(parts) not in (2, 3) or not all(math.isfinite(p) and p >= 0 for p in parts):
        raise UsageError(f"{source} {text!r} is not a price", advice=_FORM)
    return model, Price(parts[0], parts[1], parts[2] if len(parts) == 3 else parts[0])
