"""Gates: what a run as a whole has to reach, written as `pass_rate[agent='gemini'] >= 0.8`; here they are read."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.jobs.metrics import TrialKey, trial_key
from pytest_benchflow.rollout import RolloutResult

Compare = Callable[[float, float], bool]
_OPERATORS: Mapping[str, Compare] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_RATES = ("pass_rate", "pass_rate_low", "pass_rate_high")
_DROPS = ("regression", "regression_low", "regression_high")
OVER_TRIALS = re.compile(r"pass_(at|all)_([1-9][0-9]*)")
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?%?)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign>>=|<=|==|!=|[<>=\[\],])|(?P<wrong>\S))"
)


class Labels(NamedTuple):
    """What filters can ask of a rollout, before or after it ran."""

    task: str
    agent: str
    model: str | None
    scene: str | None
    sandbox: str | None
    difficulty: str | None
    category: str | None
    tags: tuple[str, ...]
    trial_of: TrialKey
    """What all trials of it have in common."""

    @classmethod
    def of(cls, result: RolloutResult) -> Labels:
        """Return the labels of a result."""
        return cls(
            result.task_name,
            result.agent,
            result.model,
            result.scene,
            result.sandbox,
            result.difficulty,
            result.category,
            tuple(result.tags),
            trial_key(result),
        )

    def values(self, name: str) -> tuple[str, ...]:
        """Return what a filter of this name is compared with."""
        if name == "tag":
            return self.tags
        if name == "task":
            return self.task, self.task.rpartition("/")[2]
        value: str | None = getattr(self, name)
        return () if value is None else (value,)


_FILTERS = ("agent", "model", "scene", "task", "tag", "category", "difficulty", "sandbox")


METRICS: Mapping[str, str] = {
    "pass_rate": "passed of those that were scored",
    "pass_rate_low": "lower end of its 95% interval",
    "pass_rate_high": "upper end of its 95% interval",
    "mean_reward": "mean reward of those",
    "mean_reward_low": "lower end of its 95% interval",
    "mean_reward_high": "upper end of its 95% interval",
    "rollouts": "rollouts that ran",
    "passed": "rollouts that passed",
    "failed": "rollouts whose reward is too low",
    "errors": "rollouts that the harness could not finish",
    "skipped": "rollouts that were skipped",
    "cost_usd": "what all rollouts cost",
    "tokens": "tokens in and out",
    "tool_calls": "tool calls",
    "seconds": "time of all rollouts added up",
    "integrity_findings": "defences that rollouts tripped",
}
"""Every metric, and what it is."""
REGRESSIONS: Mapping[str, str] = {
    "regression": "how much lower the pass rate is than the baseline's, over the tasks of both",
    "regression_low": "lower end of its 95% interval: above 0, the regression is certain",
    "regression_high": "upper end of its 95% interval",
    "reward_regression": "the same of the mean reward",
}
"""Those that compare with a baseline."""
_NAMES = (*METRICS, "pass_at_2", "pass_all_2", *REGRESSIONS)


@dataclass(frozen=True, slots=True)
class Gate:
    """One comparison of a number of the run with a limit."""

    text: str
    metric: str
    filters: tuple[tuple[str, str], ...]
    symbol: str
    limit: float
    origin: Literal["option", "implied", "baseline"] = "option"

    def __str__(self) -> str:
        return self.text

    @property
    def holds(self) -> Callable[[float], bool]:
        """Whether a value reaches what is asked for."""
        compared, limit = _OPERATORS[self.symbol], self.limit
        return lambda value: compared(round(value, 12), round(limit, 12))

    def wants(self, labels: Labels) -> bool:
        """Return whether the gate is about a rollout; patterns may have * and ?."""
        return all(any(fnmatchcase(each, value) for each in labels.values(name)) for name, value in self.filters)

    @property
    def needs_baseline(self) -> bool:
        """Whether it compares with an earlier run."""
        return self.metric in REGRESSIONS


def parse_gate(
    text: str, source: str = "--bf-gate", origin: Literal["option", "implied", "baseline"] = "option"
) -> Gate:
    """Return the gate that an expression means; what is wrong with it is shown below the column."""
    return _Parser(text, source).gate(origin)


class _Parser:
    def __init__(self, text: str, source: str) -> None:
        self._text = re.sub(r"\s", " ", text)  # a line break would put the mark below another line
        self._source = source
        self._tokens = [(match.lastgroup or "", match[match.lastgroup or 0], match.start(match.lastgroup or 0))
                        for match in _TOKEN.finditer(self._text)]  # fmt: skip
        self._at = 0

    def gate(self, origin: Literal["option", "implied", "baseline"]) -> Gate:
        metric = self._take("name", "expected a metric, for example pass_rate >= 0.8")
        if metric not in METRICS and metric not in REGRESSIONS and not OVER_TRIALS.fullmatch(metric):
            raise self._wrong(f"{metric} is not a metric", did_you_mean(metric, _NAMES), back=1)
        filters = self._filters() if self._next("[") else ()
        symbol = self._take("sign", "expected >=, <=, >, <, == or !=")
        if symbol not in _OPERATORS:
            raise self._wrong(f"{symbol} is not a comparison", "write >=, <=, >, <, == or !=", back=1)
        number = self._take("number", "expected a number")
        if self._at < len(self._tokens):
            raise self._wrong("expected nothing more", "give each gate its own --bf-gate")
        limit = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
        lowest = 0 if metric in _RATES or OVER_TRIALS.fullmatch(metric) else -1 if metric in _DROPS else None
        if lowest is not None and not lowest <= limit <= 1:
            advice = f"write {number}%" if 1 < limit <= 100 and "%" not in number else None
            raise self._wrong(f"{metric} is between {lowest} and 1", advice, back=1)
        return Gate(self._text.strip(), metric, tuple(filters), symbol, limit, origin)

    def _filters(self) -> list[tuple[str, str]]:
        filters: list[tuple[str, str]] = []
        while True:
            name = self._take("name", f"expected one of {', '.join(_FILTERS)}")
            if name not in _FILTERS:
                raise self._wrong(f"{name} is not something to filter by", did_you_mean(name, _FILTERS), back=1)
            if not (self._next("=") or self._next("==")):
                raise self._wrong("expected =", f"write {name}='…'")
            filters.append((name, self._take("text", f"expected a string, as in {name}='…'")[1:-1]))
            if self._next("]"):
                return filters
            if not self._next(","):
                raise self._wrong("expected , or ]")

    def _next(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at][1] == sign:
            self._at += 1
            return True
        return False

    def _take(self, kind: str, expected: str) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at][0] != kind:
            raise self._wrong(expected)
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _wrong(self, message: str, advice: str | None = None, *, back: int = 0) -> UsageError:
        place = self._at - back
        column = self._tokens[place][2] if place < len(self._tokens) else len(self._text.rstrip())
        what = f"{message}; {advice}" if advice else message
        # On lines of their own, since nobody knows here what will be printed before the first one.
        return UsageError(f"{self._source}: {what}\n  {self._text}\n  {' ' * column}^")


def read_gates(texts: Iterable[str], *, max_regression: float | None = None, source: str = "--bf-gate") -> list[Gate]:
    """Return the gates of a run: those given, and the one that a largest regression means."""
    gates = [parse_gate(text, source) for text in texts]
    if max_regression is not None:
        option = f"{source.removesuffix('gate')}max-regression"
        if not -1 <= max_regression <= 1:
            raise UsageError(f"{option} is {max_regression:g}", advice="give a part of 1, for example 0.05 for 5%")
        gates.append(parse_gate(f"regression <= {max_regression:g}", option, "baseline"))
    return gates
