"""Find out what a prompt used, from whichever place its agent tells it."""

from __future__ import annotations

from pytest_benchflow.agents.acp.types import as_count, as_list, as_object, as_text, at_path
from pytest_benchflow.agents.base import Usage
from pytest_benchflow.agents.manifest import Quirks
from pytest_benchflow.core.types import Json

_INPUT = ("inputTokens", "input_tokens")
_OUTPUT = ("outputTokens", "output_tokens")
_TOTAL = ("totalTokens", "total_tokens")
_CACHE_READ = ("cachedReadTokens", "cachedInputTokens", "cache_read_input_tokens", "cached_input_tokens")
_CACHE_WRITE = ("cachedWriteTokens", "cacheWriteInputTokens", "cache_creation_input_tokens", "cacheCreationTokens")


def tokens(counts: Json) -> Usage | None:
    """Return counted tokens with those from the cache among the input, whatever way the agent counts."""
    table = as_object(counts)
    read, written = _first(table, _CACHE_READ), _first(table, _CACHE_WRITE)
    prompt, output, total = _first(table, _INPUT), _first(table, _OUTPUT), _first(table, _TOTAL)
    if prompt is None and output is None:
        return None
    cache = (read or 0) + (written or 0)
    if prompt is not None and total is not None and cache and total - prompt - (output or 0) >= cache:
        prompt += cache
    return Usage(input=prompt, output=output, cached=read)


def answer_tokens(result: Json, quirks: Quirks) -> Usage | None:
    """Return what the answer to a prompt says it used."""
    counts = (tokens(at_path(result, path)) for path in quirks.usage_paths)
    return next((usage for usage in counts if usage is not None), None)


def answer_models(result: Json, quirks: Quirks) -> list[str]:
    """Return the models that the answer to a prompt says were used."""
    names: set[str | None] = set()
    for path in quirks.model_paths:
        models = at_path(result, path)
        names |= {as_text(as_object(entry).get("model")) for entry in as_list(models)} | as_object(models).keys()
    return sorted(name for name in names if name)


class Meter:
    """Adds up one session and gives out each prompt's part."""

    def __init__(self, quirks: Quirks) -> None:
        self._quirks = quirks
        self._calls: Usage | None = None
        self._cost: float | None = None
        self._cost_before = 0.0
        self._session = Usage(0, 0, 0)

    def begin_turn(self) -> None:
        """Start a prompt's part."""
        self._calls = None
        self._cost_before = self._cost or 0.0

    def update(self, update: dict[str, Json]) -> None:
        """Take what an update tells: a running cost, or the tokens of one model call."""
        cost = update.get("cost")
        if isinstance(cost, dict) and cost.get("currency", "USD") == "USD":
            amount = cost.get("amount")
            if isinstance(amount, int | float) and not isinstance(amount, bool) and 0 <= amount < 1e9:
                self._cost = float(amount)
        meta = update.get("_meta")
        if isinstance(meta, dict) and "usage" in meta and (call := tokens(meta["usage"])) is not None:
            self._calls = call if self._calls is None else _plus(self._calls, call)

    def end_turn(self, result: Json) -> Usage:
        """Return what the prompt used; what its agent does not tell stays unknown."""
        counts = answer_tokens(result, self._quirks)
        if counts is not None and self._quirks.usage == "session":
            counts, self._session = _minus(counts, self._session), counts
        used = counts or self._calls or Usage()
        cost = None if self._cost is None else max(0.0, round(self._cost - self._cost_before, 9))
        return Usage(input=used.input, output=used.output, cached=used.cached, cost_usd=cost)


def _first(table: dict[str, Json], names: tuple[str, ...]) -> int | None:
    return next((count for name in names if (count := as_count(table.get(name))) is not None), None)


def _plus(one: Usage, other: Usage) -> Usage:
    return Usage(*(_sum(*pair) for pair in _pairs(one, other)))


def _minus(total: Usage, before: Usage) -> Usage:
    return Usage(*(None if a is None else max(0, a - (b or 0)) for a, b in _pairs(total, before)))


def _pairs(one: Usage, other: Usage) -> tuple[tuple[int | None, int | None], ...]:
    return (one.input, other.input), (one.output, other.output), (one.cached, other.cached)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)
