"""Verdicts: what became of the gates of a run.

Rollouts without an outcome are the unknown rest of a gate: it is certain while they are missing only if no outcome of
theirs could change it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.core.text import counted, did_you_mean
from pytest_benchflow.jobs.bounds import Counts, certainty
from pytest_benchflow.jobs.comparison import Comparison, Difference, compare
from pytest_benchflow.jobs.gates import OVER_TRIALS, Gate, Labels
from pytest_benchflow.jobs.metrics import Outcome, Tally
from pytest_benchflow.jobs.stopping import EarlyVerdict
from pytest_benchflow.rollout import RolloutResult

Verdict = Literal["passed", "failed", "undecided", "error"]


class GateVerdict(BaseModel):
    """What became of one gate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: str = Field(description="the expression, or the name of the hook")
    outcome: Verdict
    value: float | None = None
    interval: tuple[float, float] | None = Field(
        default=None, description="95% interval of the value, where it has one"
    )
    rollouts: int = Field(default=0, description="how many rollouts it is about")
    unknown: int = Field(default=0, description="how many of them have no outcome")
    blocking: bool = Field(default=True, description="whether it decides the exit status")
    origin: Literal["option", "implied", "baseline", "hook"] = "option"
    message: str = Field(description="one sentence that says why")

    @property
    def blocks(self) -> bool:
        """Whether the run must not end green because of it."""
        return self.blocking and self.outcome != "passed"


@dataclass(frozen=True, slots=True)
class _Number:
    """A number of a run, and how far the outcomes that are still unknown can move it."""

    value: Callable[[Tally], float | None]
    interval: Callable[[Tally], tuple[float, float] | None] | None = None


def _low(tally: Tally) -> float | None:
    return None if tally.pass_rate_interval is None else tally.pass_rate_interval[0]


def _high(tally: Tally) -> float | None:
    return None if tally.pass_rate_interval is None else tally.pass_rate_interval[1]


def _reward_low(tally: Tally) -> float | None:
    return None if tally.mean_reward_interval is None else tally.mean_reward_interval[0]


def _reward_high(tally: Tally) -> float | None:
    return None if tally.mean_reward_interval is None else tally.mean_reward_interval[1]


def _count(status: str) -> Callable[[Tally], float]:
    return lambda tally: float(tally.n(status))


def _cost(tally: Tally) -> float | None:
    """Return what was paid; free agents cost nothing, and what is not known is not nothing."""
    if tally.cost_usd is None:
        return 0.0 if all(_is_free(result) for result in tally.results) else None
    return tally.cost_usd


def _tokens(tally: Tally) -> float | None:
    if tally.tokens is None:
        return 0.0 if all(_is_free(result) for result in tally.results) else None
    return float(tally.tokens)


def _is_free(result: RolloutResult) -> bool:
    is_judged = result.judge is not None and result.judge.calls > 0
    return not is_judged and (result.agent in FREE_AGENTS or result.n_prompts == 0)


def integrity_findings(result: RolloutResult) -> int:
    """Return how many defences a rollout tripped."""
    return len(result.integrity)


_NUMBERS: Mapping[str, _Number] = {
    "pass_rate": _Number(lambda t: t.pass_rate, lambda t: t.pass_rate_interval),
    "pass_rate_low": _Number(_low),
    "pass_rate_high": _Number(_high),
    "mean_reward": _Number(lambda t: t.mean_reward, lambda t: t.mean_reward_interval),
    "mean_reward_low": _Number(_reward_low),
    "mean_reward_high": _Number(_reward_high),
    "rollouts": _Number(lambda t: float(len(t.results))),
    "passed": _Number(_count("passed")),
    "failed": _Number(_count("failed")),
    "errors": _Number(_count("error")),
    "skipped": _Number(_count("skipped")),
    "cost_usd": _Number(_cost),
    "tokens": _Number(_tokens),
    "tool_calls": _Number(lambda t: float(t.n_tool_calls)),
    "seconds": _Number(lambda t: t.seconds),
    "integrity_findings": _Number(lambda t: float(sum(map(integrity_findings, t.results)))),
}


def evaluate(
    gates: Sequence[Gate],
    outcomes: Sequence[Outcome],
    *,
    rest: Sequence[Labels] = (),
    baseline: Sequence[Outcome] | None = None,
    tests: Mapping[Gate, EarlyVerdict] | None = None,
    report_only: bool = False,
) -> list[GateVerdict]:
    """Return the verdict of each gate, and of the one that is implied: no errors, where no gate allows any.

    `rest` are rollouts that did not run and might have ended in any way; `tests` may have decided all the same.
    Quarantined rollouts count for nothing. With `report_only` low numbers do not block,
    a broken harness still does.
    """
    counted = [one for one in outcomes if one.status != "quarantined"]
    known = [one for one in counted if one.result.held_back is None]
    verdicts = [_verdict(gate, counted, known, rest, baseline, tests or {}) for gate in gates]
    if (implied := _implied(gates, known)) is not None:
        verdicts.append(implied)
    if report_only:
        names = [gate.metric for gate in gates]
        verdicts = [
            each.model_copy(update={"blocking": False, "message": f"{each.message}; only reported"})
            if number < len(names) and names[number] != "errors" and each.outcome == "failed"
            else each
            for number, each in enumerate(verdicts)
        ]
    return verdicts


def _implied(gates: Sequence[Gate], known: Sequence[Outcome]) -> GateVerdict | None:
    """Return the verdict on errors that no gate speaks of, if there are any."""
    errors = [one for one in known if one.status == "error"]
    spoken = [gate for gate in gates if gate.metric == "errors"]
    unspoken = [one for one in errors if not any(gate.wants(Labels.of(one.result)) for gate in spoken)]
    if not unspoken:
        return None
    return GateVerdict(
        gate="errors == 0",
        outcome="failed",
        value=float(len(unspoken)),
        rollouts=len(known),
        origin="implied",
        message=f"{counted(len(unspoken), 'rollout')} broke in the harness; a gate such as errors <= 1 allows some",
    )


def _verdict(
    gate: Gate,
    counted: Sequence[Outcome],
    known: Sequence[Outcome],
    rest: Sequence[Labels],
    baseline: Sequence[Outcome] | None,
    tests: Mapping[Gate, EarlyVerdict],
) -> GateVerdict:
    chosen = [one for one in known if gate.wants(Labels.of(one.result))]
    unknown = [labels for labels in rest if gate.wants(labels)]
    described = {
        "gate": gate.text,
        "origin": gate.origin,
        "rollouts": len(chosen) + len(unknown),
        "unknown": len(unknown),
    }
    if not chosen:
        message = f"no rollout {'has an outcome' if unknown or not gate.filters else _matching(gate, counted)}"
        return GateVerdict(**described, outcome="error", message=message)
    if gate.needs_baseline:
        before = [one for one in baseline or () if gate.wants(Labels.of(one.result))]
        return _regression(gate, described, compare(before, chosen), baseline is not None)
    tally = Tally([one.result for one in chosen], [one.status for one in chosen])
    value, interval = _value(gate.metric, tally), _interval(gate.metric, tally)
    described |= {"value": value, "interval": interval}
    if value is None:
        return GateVerdict(**described, outcome="error", message=_why_unknown(gate.metric, tally))
    shown = _shown(gate.metric, value, interval, tally)
    if gate.metric == "cost_usd" and tally.cost_is_partial and not _fails_anyway(gate, value):
        return GateVerdict(**described, outcome="error", message=f"{shown}, but the cost of some prompts is not known")
    certain = certainty(gate, Counts.of(tally, unknown)) if unknown else gate.holds(value)
    if certain is None and gate in tests:
        test = tests[gate]
        return GateVerdict(**described, outcome="passed" if test.holds else "failed", message=f"{shown} so far, {test}")
    if certain is None:
        return GateVerdict(**described, outcome="undecided", message=f"{shown} so far, {len(unknown)} did not run")
    return GateVerdict(**described, outcome="passed" if certain else "failed", message=shown)


def _value(metric: str, tally: Tally) -> float | None:
    if over_trials := OVER_TRIALS.fullmatch(metric):
        k = int(over_trials[2])
        return tally.pass_at(k) if over_trials[1] == "at" else tally.pass_all(k)
    return _NUMBERS[metric].value(tally)


def _interval(metric: str, tally: Tally) -> tuple[float, float] | None:
    interval = _NUMBERS[metric].interval if metric in _NUMBERS else None
    return None if interval is None else interval(tally)


def _fails_anyway(gate: Gate, value: float) -> bool:
    """Return whether the known part of a sum is too much already."""
    return gate.symbol in ("<", "<=") and not gate.holds(value)


def _regression(gate: Gate, described: dict[str, object], comparison: Comparison, has_baseline: bool) -> GateVerdict:
    difference = comparison.mean_reward if gate.metric == "reward_regression" else comparison.pass_rate
    if not has_baseline or difference is None:
        why = "no task was scored in both runs" if has_baseline else "there is no baseline"
        return GateVerdict.model_validate({**described, "outcome": "error", "message": why})
    value = _drop(gate.metric, difference)
    if value is None:
        message = "a single task has no interval"
        return GateVerdict.model_validate({**described, "outcome": "error", "message": message})
    interval = None if difference.interval is None else (-difference.interval[1], -difference.interval[0])
    change = f"{difference.before:.2f} → {difference.after:.2f}"
    shown = f"{value:.3g} ({change}, {difference.verdict}, p = {difference.p_value:.2g})"
    outcome = "passed" if gate.holds(value) else "failed"
    return GateVerdict.model_validate(
        {**described, "outcome": outcome, "value": value, "interval": interval, "message": shown}
    )


def _drop(metric: str, difference: Difference) -> float | None:
    if metric in ("regression", "reward_regression"):
        return 0.0 - difference.difference
    if difference.interval is None:
        return None
    return 0.0 - difference.interval[1 if metric == "regression_low" else 0]


def _why_unknown(metric: str, tally: Tally) -> str:
    if over_trials := OVER_TRIALS.fullmatch(metric):
        counts = [trials for _, trials in tally.trials.values()]
        fewest = min(counts, default=0)
        return f"needs {over_trials[2]} scored trials of every task, and one has {fewest}; see --bf-trials"
    if metric in ("cost_usd", "tokens"):
        return "no agent told it" if metric == "tokens" else "no agent told it, and no price is known for the tokens"
    return f"none of {counted(len(tally.results), 'rollout')} was scored"


def _matching(gate: Gate, outcomes: Sequence[Outcome]) -> str:
    """Say what a filter asks for that no rollout has."""
    labels = [Labels.of(one.result) for one in outcomes]
    for name, value in gate.filters:
        known = list(dict.fromkeys(each for one in labels for each in one.values(name)))
        if not any(fnmatchcase(each, value) for each in known):
            return f"has {name}={value!r}" + (f"; {did_you_mean(value, known)}" if known else "")
    return "has all of " + ", ".join(f"{name}={value!r}" for name, value in gate.filters)


def _shown(metric: str, value: float, interval: tuple[float, float] | None, tally: Tally) -> str:
    number = f"${value:.2f}" if metric == "cost_usd" else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    details = []
    if metric == "pass_rate":
        details.append(f"{tally.n('passed')} of {len(tally.scored)}")
    if interval is not None:
        details.append(f"95% interval {interval[0]:.2f} to {interval[1]:.2f}")
    return number + (f" ({', '.join(details)})" if details else "")


def gate_lines(verdicts: Sequence[GateVerdict]) -> list[str]:
    """Return what to print: one line for each gate, aligned."""
    if not verdicts:
        return []
    width = max(len(verdict.outcome) for verdict in verdicts)
    return [f"gate {verdict.outcome.ljust(width)}  {verdict.gate}: {verdict.message}" for verdict in verdicts]
