"""`bf merge`: the reports of shards become one, and gates are applied to the whole."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.core.errors import BenchflowError, UsageError

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """What the command line says."""

    files: Sequence[Path]
    gates: Sequence[str] = ()
    baseline: Path | None = None
    max_regression: float | None = None
    report_only: bool = False
    output: Path | None = None


def merge(options: MergeOptions) -> int:
    """Merge reports, print what they add up to, and return the exit status of the whole."""
    try:
        return _merge(options)
    except BenchflowError as error:
        print(error, file=sys.stderr)
        return 2


def _merge(options: MergeOptions) -> int:
    from pytest_benchflow.jobs import read_gates
    from pytest_benchflow.reporting import judge, merge_reports, read_report, summary_lines, write_report

    gates = read_gates(options.gates, max_regression=options.max_regression, source="--gate")
    if options.baseline is None and any(gate.needs_baseline for gate in gates):
        raise UsageError("a gate on the regression has nothing to compare with", advice="give --baseline FILE")
    for path in options.files:
        if path.is_dir():
            raise UsageError(f"{path} is a directory", advice="name the files that --bf-json wrote")
    merged = merge_reports([(str(path), read_report(path)) for path in options.files])
    report = merged.report
    judgement = judge(
        gates,
        report.rollouts,
        status=merged.status,
        baseline=None if options.baseline is None else read_report(options.baseline).rollouts,
        missing=report.missing,
        n_other_failures=report.failed_tests,
        report_only=options.report_only,
    )
    print("\n".join([*(summary_lines(report.summary) if report.summary else ["no rollout"]), *judgement.lines()]))
    for lost in merged.lost[:_SHOWN]:
        print(lost, file=sys.stderr)
    if len(merged.lost) > _SHOWN:
        print(f"and {len(merged.lost) - _SHOWN} more", file=sys.stderr)
    if options.output is not None:
        verdicts = {"gates": [*judgement.verdicts], "baseline": judgement.comparison}
        final = report.model_copy(update={"exit_status": judgement.exit_status, **verdicts})
        try:
            write_report(final, options.output)
        except OSError as error:
            raise UsageError(f"{options.output} cannot be written: {error.strerror}") from None
    return judgement.exit_status
