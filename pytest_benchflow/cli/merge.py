"""`bf merge`: the reports of shards become one, and gates are applied to the whole."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_benchflow.core.errors import UsageError

_SHOWN = 5


def add_merge(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "merge",
        help="join the --bf-json reports of shards, and apply gates to the whole",
        description="Join the --bf-json reports of the shards of one run, and apply gates to the whole. The exit status"
        " is pytest's: 0 if the gates pass, or without gates if every shard did; 1 if not; 3 if a shard or a rollout is"
        " missing; 2 if the reports do not belong together.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a report that --bf-json wrote")
    parser.add_argument("--gate", action="append", default=[], metavar="EXPR", help="as --bf-gate; repeatable")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="as --bf-baseline")
    parser.add_argument("--max-regression", type=float, metavar="X", help="as --bf-max-regression")
    parser.add_argument("--report-only", action="store_true", help="as --bf-report-only")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write the report of the whole")
    parser.set_defaults(action=merge)


def merge(options: argparse.Namespace) -> int:
    """Merge reports, print what they add up to, and return the exit status of the whole."""
    from pytest_benchflow.jobs import read_gates
    from pytest_benchflow.reporting import judge, merge_reports, read_report, summary_lines, write_report

    gates = read_gates(options.gate, max_regression=options.max_regression, source="--gate")
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
        end=next(iter(merged.lost), ""),
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
