"""Verdicts: what became of the gates of a run.

Rollouts without an outcome are the unknown rest of a gate: it is certain while they are missing only if no outcome of
theirs could change it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.core.text import counted, did_you_mean
from pytest_benchflow.jobs.comparison import Comparison, Difference, compare
from pytest_benchflow.jobs.gates import OVER_TRIALS, Gate, Labels
from pytest_benchflow.jobs.metrics import Outcome, Tally, TrialKey
from pytest_benchflow.jobs.statistics import mean, pass_all_k, pass_at_k
from pytest_benchflow.rollout import RolloutResult

Verdict = Literal["passed", "failed", "undecided", "error"]


class GateVerdict(BaseModel):
    """What became of one gate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: str = Field(description="the expression, or the name of the hook")
    outcome: Verdict
    value: float | None = None
    interval: tuple[float, float] | None = Field(
        default=None, description="95 % interval of the value, where it has one"
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
    kind: Literal["rate", "mean", "count", "sum", "other"] = "other"
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
    return result.agent in FREE_AGENTS or result.n_prompts == 0


def integrity_findings(result: RolloutResult) -> int:
    """Return how many defences a rollout tripped."""
    return len(result.integrity)


_NUMBERS: Mapping[str, _Number] = {
    "pass_rate": _Number(lambda t: t.pass_rate, "rate", lambda t: t.pass_rate_interval),
    "pass_rate_low": _Number(_low),
    "pass_rate_high": _Number(_high),
    "mean_reward": _Number(lambda t: t.mean_reward, "mean", lambda t: t.mean_reward_interval),
    "mean_reward_low": _Number(_reward_low),
    "mean_reward_high": _Number(_reward_high),
    "rollouts": _Number(lambda t: float(len(t.results)), "count"),
    "passed": _Number(_count("passed"), "count"),
    "failed": _Number(_count("failed"), "count"),
    "errors": _Number(_count("error"), "count"),
    "skipped": _Number(_count("skipped"), "count"),
    "cost_usd": _Number(_cost, "sum"),
    "tokens": _Number(_tokens, "sum"),
    "tool_calls": _Number(lambda t: float(t.n_tool_calls), "sum"),
    "seconds": _Number(lambda t: t.seconds, "sum"),
    "integrity_findings": _Number(lambda t: float(sum(map(integrity_findings, t.results))), "sum"),
}


def evaluate(
    gates: Sequence[Gate],
    outcomes: Sequence[Outcome],
    *,
    rest: Sequence[Labels] = (),
    baseline: Sequence[Outcome] | None = None,
    report_only: bool = False,
) -> list[GateVerdict]:
    """Return the verdict of each gate, and of the one that is implied: no errors, where no gate allows any.

    `rest` are rollouts that did not run and might have ended in any way. Quarantined rollouts count for nothing, nor do
    those that were not started because the verdict was certain already. With `report_only` low numbers do not block,
    a broken harness still does.
    """
    counted = [one for one in outcomes if one.status != "quarantined"]
    known = [one for one in counted if one.result.held_back is None]
    verdicts = [_verdict(gate, counted, known, rest, baseline) for gate in gates]
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
    certain = certainty(gate, tally, unknown)
    if certain is None:
        return GateVerdict(**described, outcome="undecided", message=f"{shown} so far, {len(unknown)} did not run")
    return GateVerdict(**described, outcome="passed" if certain else "failed", message=shown)


def certainty(gate: Gate, tally: Tally, rest: Sequence[Labels]) -> bool | None:
    """Return whether a gate holds whatever the rest of its rollouts would give, None if that depends on it.

    Rewards are taken to lie between 0 and 1, as long as all that were seen do.
    """
    value = _value(gate.metric, tally)
    if not rest:
        return None if value is None else gate.holds(value)
    bounds = _bounds(gate.metric, tally, rest)
    if bounds is None:
        return None
    low, high = bounds
    if gate.symbol in ("==", "!="):
        outside = not low <= gate.limit <= high
        return (gate.symbol == "!=") if outside else gate.holds(low) if low == high else None
    at_low, at_high = gate.holds(low), gate.holds(high)
    return at_low if at_low == at_high else None


def _bounds(metric: str, tally: Tally, rest: Sequence[Labels]) -> tuple[float, float] | None:
    """Return between which numbers a metric will be, whatever becomes of the rest; None if that cannot be said."""
    n, scored = len(rest), len(tally.scored)
    if over_trials := OVER_TRIALS.fullmatch(metric):
        return _bounds_over_trials(over_trials[1], int(over_trials[2]), tally, rest)
    kind = _NUMBERS[metric].kind if metric in _NUMBERS else "other"
    value = _value(metric, tally)
    if kind == "rate" and scored:
        passed = tally.n("passed")
        return passed / (scored + n), (passed + n) / (scored + n)
    if kind == "mean" and scored:
        rewards = [result.reward for result in tally.scored if result.reward is not None]
        if not all(0 <= reward <= 1 for reward in rewards):
            return None
        return math.fsum(rewards) / (scored + n), (math.fsum(rewards) + n) / (scored + n)
    if kind == "count" and value is not None:
        return value, value + n
    if kind == "sum" and value is not None:
        return value, math.inf
    return None


def _bounds_over_trials(which: str, k: int, tally: Tally, rest: Sequence[Labels]) -> tuple[float, float] | None:
    counts = tally.trials
    more: dict[TrialKey, int] = {}
    for labels in rest:
        more[labels.trial_of] = more.get(labels.trial_of, 0) + 1
    if any(task not in counts for task in more) or any(trials < k for _, trials in counts.values()):
        return None  # errors among the rest could leave too few trials
    measure = pass_at_k if which == "at" else pass_all_k
    low = mean([measure(trials + more.get(task, 0), passed, k) for task, (passed, trials) in counts.items()])
    high = mean(
        [
            measure(trials + more.get(task, 0), passed + more.get(task, 0), k)
            for task, (passed, trials) in counts.items()
        ]
    )
    return None if low is None or high is None else (low, high)


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
        details.append(f"95 % interval {interval[0]:.2f} to {interval[1]:.2f}")
    return number + (f" ({', '.join(details)})" if details else "")


def gate_lines(verdicts: Sequence[GateVerdict]) -> list[str]:
    """Return what to print: one line for each gate, aligned."""
    if not verdicts:
        return []
    width = max(len(verdict.outcome) for verdict in verdicts)
    return [f"gate {verdict.outcome.ljust(width)}  {verdict.gate}: {verdict.message}" for verdict in verdicts]
