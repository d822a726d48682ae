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
from pytest_benchflow.cli.completion import add_completion
from pytest_benchflow.cli.conversions import add_conversions
from pytest_benchflow.cli.evaluations import add_evaluations
from pytest_benchflow.cli.examples import add_examples
from pytest_benchflow.cli.exports import add_exports
from pytest_benchflow.cli.judge import add_judge
from pytest_benchflow.cli.merge import add_merge
from pytest_benchflow.cli.regrade import add_regrade
from pytest_benchflow.cli.reports import add_reports
from pytest_benchflow.cli.watch import add_watch
from pytest_benchflow.core.errors import BenchflowError

_KEPT_DAYS = 30.0
_PIPE_CLOSED = 128 + signal.SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; a reader that stops reading, as in `bf … | head`, ends it quietly."""
    words, command = _split_command(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(make_parser().parse_args(words), command)
        sys.stdout.flush()
    except BenchflowError as error:
        print(f"bf: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's own flush succeeds
        return _PIPE_CLOSED
    return status


def _run(options: argparse.Namespace, command: Sequence[str]) -> int:
    if "action" in options:
        status: int = options.action(options)
        return status
    if options.command == "shell":
        return _shell(options, command)
    if options.command == "schema":
        return _schema(options.of)
    if options.command == "cleanup":
        from pytest_benchflow.cli.cleanup import clean_up

        max_age = options.max_age if options.images else None
        return clean_up(
            remove=options.yes, everything=options.all, run=options.run, max_age_days=max_age, as_json=options.json
        )
    if options.command == "metrics":
        from pytest_benchflow.cli.jobs import show_metrics

        labels = {"benchmark": options.benchmark, "agent": options.agent, "model": options.model}
        return show_metrics(options.directory, **labels, as_json=options.json)
    if options.command == "agents":
        return _agents(options)
    return _tasks(options)


def _split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our own words and those after --, which belong to another program and are not to be looked at."""
    words = [*argv]
    if words[:1] != ["shell"] or "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _shell(options: argparse.Namespace, command: Sequence[str]) -> int:
    from pytest_benchflow.cli.shell import ShellOptions, open_shell

    return open_shell(
        ShellOptions(
            options.task,
            command,
            sandbox=options.sandbox,
            sandbox_options=options.sandbox_option,
            services=options.service,
            user=options.user,
            solve=options.solve,
            verify=options.verify,
        )
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command."""
    parser = argparse.ArgumentParser(prog="bf", description="Agent benchmarks; to run them use pytest.")
    parser.add_argument("--version", action="version", version=f"pytest-benchflow {version('pytest-benchflow')}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_tasks(commands)
    _add_shell(commands)
    listed = commands.add_parser("agents", help="list agents and what each lacks to run here")
    listed.add_argument("--json", action="store_true", help="list them as JSON")
    agents = listed.add_subparsers(dest="verb", metavar="[show|install|prune]")
    show = agents.add_parser("show", help="everything about one agent")
    show.add_argument("name", metavar="NAME", help="an agent, by name or alias, or the path of a manifest")
    add_bundle_verbs(agents, _days, _KEPT_DAYS)
    add_evaluations(commands)
    add_watch(commands)
    add_regrade(commands)
    metrics = commands.add_parser("metrics", help="count what the results below a directory say")
    metrics.add_argument("directory", type=Path, metavar="DIR", help="a job, or a folder of jobs")
    metrics.add_argument("-b", "--benchmark", default="", metavar="NAME", help="its name in the output")
    metrics.add_argument("-a", "--agent", default="", metavar="NAME", help="only this agent, where there are several")
    metrics.add_argument("-m", "--model", default="", metavar="ID", help="only this model, where there are several")
    metrics.add_argument("--json", action="store_true", help="everything, as JSON")
    add_reports(commands)
    add_exports(commands)
    add_completion(commands, parser)
    add_merge(commands)
    add_judge(commands)
    schema = commands.add_parser(
        "schema", help="print the JSON Schema of the --bf-json report, of rollout files or of rubrics"
    )
    schema.add_argument("of", nargs="?", choices=("report", "rollout", "rubric"), default="report")
    cleanup = commands.add_parser("cleanup", help="list what dead runs have left; removes nothing without --yes")
    cleanup.add_argument("--yes", action="store_true", help="remove what is listed")
    cleanup.add_argument("--all", action="store_true", help="also what was kept on purpose or is in use by a live run")
    cleanup.add_argument("--run", metavar="ID", help="only what belongs to this run")
    cleanup.add_argument("--json", action="store_true", help="tell what was found, and removed, as JSON")
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
    add_examples(parser)
    return parser


def _add_tasks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tasks = commands.add_parser("tasks", help="work on task directories").add_subparsers(dest="verb", required=True)
    init = tasks.add_parser("init", help="write a new task that works, to be changed into yours")
    init.add_argument("path", type=Path, metavar="NAME", help="the directory to make, for example tasks/fix-parser")
    init.add_argument(
        "--from", dest="source", type=Path, metavar="FOLDER", help="an existing project, which the agent will work on"
    )
    check = tasks.add_parser("check", help="read tasks and report every problem; starts nothing without --run")
    check.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a task, or a folder of tasks")
    check.add_argument("--strict", action="store_true", help="unknown keys are errors")
    check.add_argument("--json", action="store_true", help="report the problems as JSON, without --run")
    check.add_argument("--run", action="store_true", help="also run them: oracle has to pass, and nop must not")
    _add_sandbox(check)
    check.add_argument(
        "--jobs-dir", type=Path, default=Path("jobs"), metavar="DIR", help="where results go (default: %(default)s)"
    )
    check.add_argument("--concurrency", type=_count, metavar="N", help="rollouts at a time (default: one per CPU)")
    add_conversions(tasks)


def _add_shell(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    shell = commands.add_parser(
        "shell",
        help="a task's environment as an agent finds it, with a prompt",
        usage="bf shell [options] TASK [-- COMMAND [ARGUMENT ...]]",
        description="Start the environment of a task as an agent would find it, and open a shell there or run a"
        " command. The exit status is the shell's or command's, 125 if the environment could not be had.",
    )
    shell.add_argument("task", type=Path, metavar="TASK", help="the directory of a task")
    _add_sandbox(shell)
    shell.add_argument("--service", action="append", default=[], metavar="NAME", help="a service beside the agent")
    shell.add_argument("--user", metavar="NAME", help="be this user instead of the agent's")
    shell.add_argument("--solve", action="store_true", help="run the solution first, as the agent oracle does")
    shell.add_argument(
        "--verify", action="store_true", help="have the command bf-verify inside, which runs the verifier"
    )


def _add_sandbox(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sandbox", default="auto", metavar="NAME", help="as --bf-sandbox (default: %(default)s)")
    parser.add_argument(
        "--sandbox-option",
        action="append",
        default=[],
        metavar="NAME.OPTION=VALUE",
        help="as --bf-sandbox-option; can be given more than once",
    )


def _tasks(options: argparse.Namespace) -> int:
    if options.verb == "init":
        from pytest_benchflow.cli.task_template import init_task

        return init_task(options.path, source=options.source)
    from pytest_benchflow.cli.tasks import check

    if not options.run:
        return check(options.paths, strict=options.strict, as_json=options.json)
    from pytest_benchflow.cli.self_test import SelfTestOptions

    run = SelfTestOptions(options.sandbox, options.sandbox_option, options.jobs_dir, options.concurrency)
    return check(options.paths, strict=options.strict, run=run)


def _agents(options: argparse.Namespace) -> int:
    from pytest_benchflow.cli.agents import install, list_agents, prune, show_agent

    if options.verb is None:
        return list_agents(as_json=options.json)
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
    from pytest_benchflow.verify import rubric_schema

    schemas = {"report": Report.model_json_schema, "rollout": rollout_schema, "rubric": rubric_schema}
    print(json.dumps(schemas[of](), indent=2, ensure_ascii=False))
    return 0
