"""The `bf` command: what is useful beside pytest itself."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from pytest_benchflow.cli.agents import add_bundle_verbs

_KEPT_DAYS = 30.0
_PIPE_CLOSED = 128 + signal.SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; a reader that stops reading, as in `bf … | head`, ends it quietly."""
    try:
        status = _run(_parser().parse_args(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's own flush succeeds
        return _PIPE_CLOSED
    return status


def _run(options: argparse.Namespace) -> int:
    if options.command == "schema":
        return _schema(options.of)
    if options.command == "cleanup":
        from pytest_benchflow.cli.cleanup import clean_up

        max_age = options.max_age if options.images else None
        return clean_up(remove=options.yes, everything=options.all, run=options.run, max_age_days=max_age)
    if options.command == "run":
        from pytest_benchflow.cli.jobs import run_job

        return run_job(options.file, job_name=options.job_name, resume=options.resume, retries=options.retries)
    if options.command == "metrics":
        from pytest_benchflow.cli.jobs import show_metrics

        labels = {"benchmark": options.benchmark, "agent": options.agent, "model": options.model}
        return show_metrics(options.directory, **labels, as_json=options.json)
    if options.command == "agents":
        return _agents(options)
    from pytest_benchflow.cli.tasks import check

    return check(options.paths, strict=options.strict)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bf", description="Agent benchmarks; to run them use pytest.")
    parser.add_argument("--version", action="version", version=f"pytest-benchflow {version('pytest-benchflow')}")
    commands = parser.add_subparsers(dest="command", required=True)
    tasks = commands.add_parser("tasks", help="work on task directories").add_subparsers(dest="verb", required=True)
    check = tasks.add_parser("check", help="read tasks and report every problem; starts nothing")
    check.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a task, or a folder of tasks")
    check.add_argument("--strict", action="store_true", help="unknown keys are errors")
    agents = commands.add_parser("agents", help="list agents and what each lacks to run here").add_subparsers(
        dest="verb", metavar="[show|install|prune]"
    )
    show = agents.add_parser("show", help="everything about one agent")
    show.add_argument("name", metavar="NAME", help="an agent, by name or alias, or the path of a manifest")
    add_bundle_verbs(agents, _days, _KEPT_DAYS)
    job = commands.add_parser("run", help="run a job file without pytest")
    job.add_argument("file", type=Path, metavar="FILE", help="a job or rollout file that names its tasks")
    job.add_argument("--job-name", metavar="NAME", help="name of the job's directory, as --bf-job-name")
    job.add_argument("--resume", action="store_true", help="continue the job of that name, or the newest one")
    job.add_argument("--retries", type=_count, metavar="N", help="as --bf-retries, instead of the file's own")
    metrics = commands.add_parser("metrics", help="count what the results below a directory say")
    metrics.add_argument("directory", type=Path, metavar="DIR", help="a job, or a folder of jobs")
    metrics.add_argument("-b", "--benchmark", default="", metavar="NAME", help="its name in the output")
    metrics.add_argument("-a", "--agent", default="", metavar="NAME", help="only this agent, where there are several")
    metrics.add_argument("-m", "--model", default="", metavar="ID", help="only this model, where there are several")
    metrics.add_argument("--json", action="store_true", help="everything, as JSON")
    schema = commands.add_parser("schema", help="print the JSON Schema of the --bf-json report, or of rollout files")
    schema.add_argument("of", nargs="?", choices=("report", "rollout"), default="report")
    cleanup = commands.add_parser("cleanup", help="list what dead runs have left; removes nothing without --yes")
    cleanup.add_argument("--yes", action="store_true", help="remove what is listed")
    cleanup.add_argument("--all", action="store_true", help="also what was kept on purpose or is in use by a live run")
    cleanup.add_argument("--run", metavar="ID", help="only what belongs to this run")
    cleanup.add_argument(
        "--images", action="store_true", help="also images and local layers of tasks, and volumes of agents"
    )
    cleanup.add_argument(
        "--max-age",
        type=_days,
        default=_KEPT_DAYS,
        metavar="DAYS",
        help="with --images, only those older, or longer unused, than this (default: %(default)g)",
    )
    return parser


def _agents(options: argparse.Namespace) -> int:
    from pytest_benchflow.cli.agents import install, list_agents, prune, show_agent

    if options.verb is None:
        return list_agents()
    if options.verb == "show":
        return show_agent(options.name)
    if options.verb == "install":
        return install(options.names, everything=options.all)
    return prune(remove=options.yes, max_age_days=options.max_age)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


def _days(text: str) -> float:
    days = float(text) if text.replace(".", "", 1).isdecimal() else -1.0
    if days < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days; expected 0 or more")
    return days


def _schema(of: str) -> int:
    import json

    from pytest_benchflow.reporting import Report
    from pytest_benchflow.rollout import rollout_schema

    schema = rollout_schema() if of == "rollout" else Report.model_json_schema()
    print(json.dumps(schema, indent=2, ensure_ascii=False))
    return 0
