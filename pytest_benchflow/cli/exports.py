"""`bf export`, `bf junit` and `bf markdown`: what a finished job, or a merged report, becomes for other tools."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.cli.output import write_errors, write_text
from pytest_benchflow.core.errors import UsageError

if TYPE_CHECKING:
    from pytest_benchflow.reporting import Report

_SOURCE = "a job, a folder of jobs, or a --bf-json file"
_ADVICE = "name a directory of yours with -o"


def add_exports(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the three commands."""
    export = commands.add_parser(
        "export",
        help="trajectories for other tools: ATIF files, training data, spans",
        description="Write the trajectories of a job: as ATIF, one file each, or as training data in JSON lines,"
        " rollouts.jsonl (all that were scored), sft.jsonl (the good ones as chats) and rl.jsonl (prompts, rewards).",
    )
    export.add_argument("source", type=Path, metavar="PATH", help=_SOURCE)
    export.add_argument("--format", choices=("atif", "training", "otel"), required=True, help="what to write")
    export.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="where to, made if need be; otel sends to a collector"
    )
    export.add_argument(
        "--min-reward", type=float, metavar="X", help="what is good enough to imitate (default: each one's threshold)"
    )
    export.add_argument(
        "--holdout",
        type=_share,
        default=0.0,
        metavar="SHARE",
        help="share of the tasks, 0 to 1, whose rows go into files of their own",
    )
    export.add_argument("--json", action="store_true", help="tell what was written as JSON")
    export.set_defaults(action=_export)
    for name, what, action in (("junit", "JUnit XML", _junit), ("markdown", "Markdown for a comment", _markdown)):
        parser = commands.add_parser(name, help=f"a finished job as {what}")
        parser.add_argument("source", type=Path, metavar="PATH", help=_SOURCE)
        parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it here instead of printing it")
        parser.set_defaults(action=action)


def _export(options: argparse.Namespace) -> int:
    from pytest_benchflow.reporting import read_report

    if options.output is None and options.format != "otel":
        raise UsageError("there is nowhere to write to", advice="name a directory with -o")
    results = [entry.result for entry in read_report(options.source).rollouts]
    if options.format == "otel":
        from pytest_benchflow.reporting import send_spans

        sent = send_spans(results)
        told: dict[str, object] = {"sent": sent}
        line, more = f"{sent} rollouts sent", []
    elif options.format == "atif":
        from pytest_benchflow.reporting import write_atif

        with write_errors(options.output, advice=_ADVICE):
            written = write_atif(results, options.output)
        told = {"files": written, "without_trajectory": len(results) - written}
        line = f"{written} trajectories in {options.output}"
        more = [f"{len(results) - written} rollouts have none"] if written < len(results) else []
    else:
        from pytest_benchflow.reporting import write_training

        with write_errors(options.output, advice=_ADVICE):
            exported = write_training(results, options.output, min_reward=options.min_reward, holdout=options.holdout)
        told = {**exported.as_json()}
        line = ", ".join(f"{count} in {options.output / name}" for name, count in sorted(exported.rows.items()))
        more = [f"{count} left out: {why}" for why, count in exported.left_out.most_common()]
        more += [f"{count} not for imitation: {why}" for why, count in exported.not_sft.most_common()]
    print(json.dumps(told) if options.json else "\n".join([line or "nothing to export", *more]))
    return 0


def _junit(options: argparse.Namespace) -> int:
    from pytest_benchflow.reporting import junit_xml

    write_text(junit_xml(_report(options)), options.output)
    return 0


def _markdown(options: argparse.Namespace) -> int:
    from pytest_benchflow.reporting import markdown_text

    write_text(markdown_text(_report(options)), options.output)
    return 0


def _report(options: argparse.Namespace) -> Report:
    from pytest_benchflow.reporting import read_report

    return read_report(options.source)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; expected a number from 0 to 1, for example 0.1")
    return share
