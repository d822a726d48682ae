"""How far outcomes that are still unknown can move a number of the run, and whether a gate on it is certain already."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_benchflow.jobs.gates import OVER_TRIALS, Gate, Labels
from pytest_benchflow.jobs.metrics import Tally, TrialKey, seconds_of, trial_key
from pytest_benchflow.jobs.statistics import mean, pass_all_k, pass_at_k

_COUNTED = {"passed": "passed", "failed": "failed", "errors": "error", "skipped": "skipped"}
_ADDED = ("cost_usd", "tokens", "tool_calls", "seconds", "integrity_findings")
_MAY_BE_UNKNOWN = ("cost_usd", "tokens")
"""What one of the rest may fail to tell, which is then an error: a limit they keep is never certain before the end."""


@dataclass(slots=True)
class _Trials:
    passed: int = 0
    scored: int = 0
    left: int = 0


@dataclass(slots=True)
class Counts:
    """What is known of the rollouts of a gate, and how many have no outcome; kept up to date as outcomes come."""

    rest: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    reward: float = 0.0
    is_on_scale: bool = True
    """Whether all rewards lie between 0 and 1; then those of the rest are taken to do so too."""
    sums: dict[str, float] = field(default_factory=dict)
    untold: set[str] = field(default_factory=set)
    """Of which sums a part is not known."""
    trials: dict[TrialKey, _Trials] = field(default_factory=dict)

    @classmethod
    def of(cls, tally: Tally, rest: Iterable[Labels]) -> Counts:
        """Count results, and the rollouts that are still unknown."""
        counts = cls()
        for labels in rest:
            counts.expect(labels.trial_of)
        for result, status in zip(tally.results, tally.statuses, strict=True):
            counts.expect(trial_key(result))
            counts.add(trial_key(result), status, result.reward)
            counts.spend("cost_usd", result.spent_usd)
            counts.spend("tokens", result.spent_tokens)
            counts.spend("tool_calls", result.n_tool_calls)
            counts.spend("seconds", seconds_of(result))
            counts.spend("integrity_findings", len(result.integrity))
        return counts

    @property
    def scored(self) -> int:
        """How many passed or failed."""
        return self.n("passed") + self.n("failed")

    def n(self, status: str) -> int:
        """Return how many ended so."""
        return self.statuses.get(status, 0)

    def expect(self, trial_of: TrialKey) -> None:
        """Count a rollout whose outcome is unknown."""
        self.rest += 1
        self.trials.setdefault(trial_of, _Trials()).left += 1

    def add(self, trial_of: TrialKey, status: str, reward: float | None) -> None:
        """Take the outcome of one that was expected."""
        self.rest -= 1
        self.statuses[status] = self.n(status) + 1
        trials = self.trials[trial_of]
        trials.left -= 1
        if status in ("passed", "failed"):
            trials.scored += 1
            trials.passed += status == "passed"
            self.reward += reward or 0.0
            self.is_on_scale = self.is_on_scale and 0 <= (reward or 0.0) <= 1

    def spend(self, what: str, amount: float | None) -> None:
        """Add what a rollout or an attempt at it used, None if that is not known."""
        if amount is None:
            self.untold.add(what)
        else:
            self.sums[what] = self.sums.get(what, 0.0) + amount

    def bounds(self, metric: str) -> tuple[float, float] | None:
        """Return between which numbers a metric will be, whatever becomes of the rest; None if that cannot be said."""
        rest, scored = self.rest, self.scored
        if over_trials := OVER_TRIALS.fullmatch(metric):
            return self._over_trials(over_trials[1], int(over_trials[2]))
        if metric == "pass_rate" and scored:
            return self.n("passed") / (scored + rest), (self.n("passed") + rest) / (scored + rest)
        if metric == "mean_reward" and scored and self.is_on_scale:
            return self.reward / (scored + rest), (self.reward + rest) / (scored + rest)
        if metric in _COUNTED:
            known = self.n(_COUNTED[metric])
            return known, known + rest
        if metric == "rollouts":
            known = sum(self.statuses.values())
            return known, known + rest
        if metric in _ADDED:
            spent = self.sums.get(metric, 0.0)
            return spent, math.inf if rest or metric in self.untold else spent
        return None

    def _over_trials(self, which: str, k: int) -> tuple[float, float] | None:
        """Return the bounds if none of the rest passes or all do; errors among them could leave too few trials."""
        if not self.trials or any(each.scored < k for each in self.trials.values()):
            return None
        measure = pass_at_k if which == "at" else pass_all_k
        tasks = self.trials.values()
        low = mean([measure(each.scored + each.left, each.passed, k) for each in tasks])
        high = mean([measure(each.scored + each.left, each.passed + each.left, k) for each in tasks])
        return None if low is None or high is None else (low, high)


def certainty(gate: Gate, counts: Counts) -> bool | None:
    """Return whether a gate holds whatever the rest of its rollouts would give, None if that depends on it."""
    bounds = counts.bounds(gate.metric)
    if bounds is None:
        return None
    holds = _holds_between(gate, *bounds)
    may_be_unknown = gate.metric in _MAY_BE_UNKNOWN and (counts.rest or gate.metric in counts.untold)
    return None if holds and may_be_unknown else holds


def _holds_between(gate: Gate, low: float, high: float) -> bool | None:
    if gate.symbol in ("==", "!="):
        outside = not low <= gate.limit <= high
        return (gate.symbol == "!=") if outside else gate.holds(low) if low == high else None
    at_low, at_high = gate.holds(low), gate.holds(high)
    return at_low if at_low == at_high else None
