"""What becomes of a whole run: the verdicts on it, what is printed of them, and the exit status that follows.

One object for pytest, `bf run` and `bf merge`, so that what is printed and the exit status cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_benchflow.core.text import counted, duration
from pytest_benchflow.jobs import (
    Comparison,
    EarlyVerdict,
    Gate,
    GateVerdict,
    Labels,
    Outcome,
    Saved,
    compare,
    comparison_lines,
    evaluate,
    gate_lines,
    saved_by_stopping,
)

OK, FAILED, INTERRUPTED, INTERNAL_ERROR, NO_TESTS = 0, 1, 2, 3, 5
"""Exit statuses, which are pytest's."""
_DECIDABLE = (OK, FAILED, NO_TESTS)


@dataclass(frozen=True)
class Judgement:
    """The verdicts on a run that would end with `status` if there were no gates."""

    status: int
    verdicts: Sequence[GateVerdict] = ()
    comparison: Comparison | None = None
    missing: Sequence[str] = ()
    """What was selected and never reported."""
    n_unpaid: int = 0
    """How many rollouts did not start because the money was spent."""
    saved: Saved | None = None
    """What did not have to run because all was decided."""
    n_other_failures: int = 0
    """Failures that are not of rollouts, which gates do not decide about."""

    @property
    def exit_status(self) -> int:
        """The exit status: gates decide, unless the run was stopped, lost something or has failures of another kind."""
        if self.status not in _DECIDABLE:
            return self.status
        is_red = bool(self.missing or self.n_other_failures or any(verdict.blocks for verdict in self.verdicts))
        if self.verdicts and not is_red:
            return OK
        if self.status == OK and ((self.verdicts and is_red) or self.n_unpaid):
            return FAILED
        return self.status

    @property
    def is_complete(self) -> bool:
        """Whether everything that was selected has an outcome."""
        return self.status in _DECIDABLE and not self.missing and not self.n_unpaid

    def lines(self) -> list[str]:
        """Return what to print; the last line says whether the gates passed."""
        lines = gate_lines(self.verdicts)
        if self.comparison is not None:
            first, *rest = comparison_lines(self.comparison)
            lines += [f"baseline: {first}", *rest]
        if self.n_unpaid:
            lines.append(f"budget: {counted(self.n_unpaid, 'rollout')} did not start, because the money is spent")
        if self.saved is not None:
            lines.append(saved_words(self.saved))
        return [*lines, *self._last()]

    def _last(self) -> list[str]:
        if not self.verdicts:
            return []
        blocked = sum(verdict.blocks for verdict in self.verdicts)
        if blocked:
            return [f"gates: not passed ({blocked} of {len(self.verdicts)})"]
        if self.exit_status == OK:
            reported = sum(verdict.outcome != "passed" for verdict in self.verdicts)
            return ["gates: passed" + (f", {reported} only reported" if reported else "")]
        n = self.n_other_failures
        why = f"{counted(n, 'failure')} {'is not of a rollout' if n == 1 else 'are not of rollouts'}"
        return [f"gates: passed, but {why if n else 'the run did not end as it should'}"]


def judge(
    gates: Sequence[Gate],
    outcomes: Sequence[Outcome],
    *,
    status: int,
    baseline: Sequence[Outcome] | None = None,
    others: Sequence[GateVerdict] = (),
    tests: Mapping[Gate, EarlyVerdict] | None = None,
    missing: Sequence[str] = (),
    n_other_failures: int = 0,
    report_only: bool = False,
    end: str = "the run was stopped",
) -> Judgement:
    """Return the judgement on a run: by its gates, some of which `tests` may have decided early, and by `others`.

    A run that was stopped or has lost something passes no gate: whatever it says so far may change. `end` says how it
    came to such a status.
    """
    judged = [one for one in outcomes if one.status != "quarantined"]
    rest = [Labels.of(one.result) for one in judged if one.result.held_back is not None]
    verdicts: list[GateVerdict] = []
    if gates or others:
        verdicts = evaluate(gates, outcomes, rest=rest, baseline=baseline, tests=tests, report_only=report_only)
        verdicts = [*verdicts[: len(gates)], *others, *verdicts[len(gates) :]]
        if missing or status not in _DECIDABLE:
            why = f"{counted(len(missing), 'rollout')} never reported" if missing else end
            verdicts = [_undecided(verdict, why) for verdict in verdicts]
    comparison = None if baseline is None or not outcomes else compare(baseline, outcomes)
    return Judgement(
        status,
        verdicts,
        comparison,
        missing,
        n_unpaid=sum(one.result.held_back == "budget" for one in outcomes),
        saved=saved_by_stopping(outcomes),
        n_other_failures=n_other_failures,
    )


def saved_words(saved: Saved) -> str:
    """Say what did not have to run."""
    cost = "" if not saved.cost_usd else f"${saved.cost_usd:.2f} and "
    return (
        f"decided early: {saved.rollouts} of {counted(saved.of, 'rollout')} did not have to start, "
        f"which saved about {cost}{duration(saved.seconds)} of rollouts"
    )


def _undecided(verdict: GateVerdict, why: str) -> GateVerdict:
    if verdict.outcome == "error":
        return verdict
    message = f"{verdict.message} so far, but {why}"
    return verdict.model_copy(update={"outcome": "undecided", "message": message, "blocking": True})
