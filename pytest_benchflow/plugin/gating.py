"""What becomes of a whole run: its gates, its baseline, and the exit status that follows from them.

Used where pytest was started, once all results are there. What is printed and the exit status come from one object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.core.errors import BenchflowError, UsageError
from pytest_benchflow.plugin.stash import attribute_errors_to

if TYPE_CHECKING:
    from pytest_benchflow.jobs import Comparison, Gate, GateVerdict
    from pytest_benchflow.plugin.session import BenchSession
    from pytest_benchflow.reporting import Entry, Report

_DECIDABLE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass(frozen=True)
class Judgement:
    """The verdicts on a run."""

    verdicts: Sequence[GateVerdict] = ()
    comparison: Comparison | None = None
    n_unpaid: int = 0
    """How many rollouts did not start because the money was spent."""
    missing: Sequence[str] = ()
    n_other_failures: int = 0
    lines: Sequence[str] = field(default_factory=tuple)

    def exit_status(self, status: int) -> int:
        """Return the exit status of the run: pytest's own, unless gates have a say in it."""
        if status not in _DECIDABLE:
            return status
        is_red = self.missing or self.n_other_failures or any(verdict.blocks for verdict in self.verdicts)
        if self.verdicts and not is_red:
            return pytest.ExitCode.OK
        if status == pytest.ExitCode.OK and ((self.verdicts and is_red) or self.n_unpaid):
            return pytest.ExitCode.TESTS_FAILED
        return status


def read_run_gates(run: BenchSession) -> list[Gate]:
    """Return the gates that options and files name; what is wrong with them is told before anything starts."""
    settings = run.settings
    if settings.max_regression is not None and settings.baseline is None:
        raise UsageError("--bf-max-regression has nothing to compare with", advice="give --bf-baseline FILE")
    if settings.update_baseline and settings.baseline is None:
        raise UsageError("--bf-update-baseline has no file", advice="give --bf-baseline FILE")
    if not settings.gate and settings.max_regression is None:
        return []
    from pytest_benchflow.jobs import read_gates

    drop = None if settings.update_baseline else settings.max_regression  # an update moves the bar
    gates = read_gates(settings.gate, max_regression=drop)
    for gate in gates:
        if gate.needs_baseline and settings.baseline is None:
            raise UsageError(f"--bf-gate: {gate} has nothing to compare with", advice="give --bf-baseline FILE")
    return gates


def read_baseline(run: BenchSession) -> Sequence[Entry] | None:
    """Return the rollouts of the baseline, None if there is none."""
    path = run.settings.baseline
    if path is None or (run.settings.update_baseline and not path.exists()):
        return None
    from pytest_benchflow.reporting import read_report

    try:
        return read_report(path).rollouts
    except BenchflowError as error:
        raise UsageError(f"--bf-baseline: {error}") from None


def judge_run(
    run: BenchSession,
    entries: Sequence[Entry],
    *,
    status: int,
    missing: Sequence[str],
    n_other_failures: int,
) -> Judgement:
    """Return the verdicts on a run that ends with a status of pytest's."""
    from pytest_benchflow.jobs import Labels, compare, evaluate

    gates = run.gates if entries or run.is_judged_without_rollouts else []
    rest = [Labels.of(entry.result) for entry in entries if entry.result.held_back == "budget"]
    hooks = _hook_verdicts(run, entries)
    verdicts: list[GateVerdict] = []
    if gates or hooks:
        verdicts = evaluate(gates, entries, rest=rest, baseline=run.baseline, report_only=run.settings.report_only)
        verdicts = [*verdicts[: len(gates)], *hooks, *verdicts[len(gates) :]]
        if missing or status not in _DECIDABLE:
            verdicts = [_undecided(verdict, len(missing)) for verdict in verdicts]
    comparison = None if run.baseline is None or not entries else compare(run.baseline, entries)
    found = Judgement(verdicts, comparison, len(rest), missing, n_other_failures)
    return Judgement(verdicts, comparison, len(rest), missing, n_other_failures, _lines(found, status))


def update_baseline(run: BenchSession, report: Report, path: Path) -> str:
    """Make the report of a complete run the new baseline, and say so or why not."""
    from pytest_benchflow.reporting import write_report

    shown = run.shown(str(path))
    errors = sum(entry.status in ("error", "cancelled") for entry in report.rollouts)
    if report.missing or errors or not report.rollouts or report.exit_status not in _DECIDABLE:
        return f"baseline: {shown} is not updated, because the run is not complete"
    try:
        write_report(report, path)
    except OSError as error:
        return f"baseline: {shown} could not be written: {error.strerror}"
    return f"baseline: {shown} is this run now"


def _undecided(verdict: GateVerdict, n_missing: int) -> GateVerdict:
    """Return the verdict of a run that did not come to its end: whatever it says so far may change."""
    lost = "1 rollout" if n_missing == 1 else f"{n_missing} rollouts"
    why = f"{lost} never reported" if n_missing else "the run was stopped"
    if verdict.outcome == "error":
        return verdict
    message = f"{verdict.message} so far, but {why}"
    return verdict.model_copy(update={"outcome": "undecided", "message": message, "blocking": True})


def _hook_verdicts(run: BenchSession, entries: Sequence[Entry]) -> list[GateVerdict]:
    hook = run.config.hook.pytest_bf_gate
    if not hook.get_hookimpls():
        return []
    from pytest_benchflow.jobs import GateVerdict

    results = [entry.result for entry in entries if entry.status != "quarantined" and entry.result.held_back is None]
    try:
        with attribute_errors_to("pytest_bf_gate"):
            answers: list[object] = hook(results=results)
    except BenchflowError as error:
        answers = [error]
    verdicts = []
    for answer in answers:
        if isinstance(answer, BenchflowError) or not isinstance(answer, str | bool):
            outcome, message = "error", f"{answer}" if isinstance(answer, BenchflowError) else f"returned {answer!r}"
        elif isinstance(answer, str):
            outcome, message = "failed", answer
        else:
            outcome, message = ("passed", "as the hook wants it") if answer else ("failed", "not as the hook wants it")
        blocking = not (run.settings.report_only and outcome == "failed")
        described = {"gate": "pytest_bf_gate", "origin": "hook", "rollouts": len(results)}
        verdicts.append(
            GateVerdict.model_validate({**described, "outcome": outcome, "message": message, "blocking": blocking})
        )
    return verdicts


def _lines(found: Judgement, status: int) -> list[str]:
    """Return what to print."""
    from pytest_benchflow.jobs import comparison_lines, gate_lines

    lines = gate_lines(found.verdicts)
    if found.comparison is not None:
        first, *rest = comparison_lines(found.comparison)
        lines += [f"baseline: {first}", *rest]
    if found.n_unpaid:
        lost = "1 rollout" if found.n_unpaid == 1 else f"{found.n_unpaid} rollouts"
        lines.append(f"budget: {lost} did not start, because the money is spent")
    if not found.verdicts:
        return lines
    blocked = sum(verdict.blocks for verdict in found.verdicts)
    if found.exit_status(status) == pytest.ExitCode.OK:
        lines.append("gates: passed" + _low(found.verdicts))
    elif blocked:
        lines.append(f"gates: not passed ({blocked} of {len(found.verdicts)})")
    elif found.n_other_failures:
        n = found.n_other_failures
        lines.append(
            "gates: passed, but " + ("1 failure is not of a rollout" if n == 1 else f"{n} failures are not of rollouts")
        )
    else:
        lines.append("gates: passed, but the run did not end as it should")
    return lines


def _low(verdicts: Sequence[GateVerdict]) -> str:
    reported = sum(verdict.outcome != "passed" for verdict in verdicts)
    return f", {reported} only reported" if reported else ""
