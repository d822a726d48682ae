"""The `bf` command: what is useful beside pytest itself."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(prog="bf", description="Agent benchmarks; to run them use pytest.")
    parser.add_argument("--version", action="version", version=f"pytest-benchflow {version('pytest-benchflow')}")
    commands = parser.add_subparsers(dest="command", required=True)
    tasks = commands.add_parser("tasks", help="work on task directories").add_subparsers(dest="verb", required=True)
    check = tasks.add_parser("check", help="read tasks and report every problem; starts nothing")
    check.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a task, or a folder of tasks")
    check.add_argument("--strict", action="store_true", help="unknown keys are errors")
    commands.add_parser("schema", help="print the JSON Schema of the --bf-json report")
    options = parser.parse_args(argv)
    if options.command == "schema":
        return _schema()
    return _check(options.paths, strict=options.strict)


def _check(paths: Sequence[Path], *, strict: bool) -> int:
    from pytest_benchflow.tasks import TaskError, load_task

    good = broken = 0
    for directory in _tasks_below(paths):
        try:
            task = load_task(directory, strict=strict)
        except TaskError as error:
            print(error, file=sys.stderr)
            broken += 1
        else:
            good += 1
            for problem in task.warnings:
                print(f"{problem} (warning)", file=sys.stderr)
    if not good and not broken:
        print(f"no task in {', '.join(map(str, paths))}; a task has a task.toml or a task.md", file=sys.stderr)
        return 2
    print(f"{good + broken} tasks, {broken} broken")
    return 1 if broken else 0


def _tasks_below(paths: Sequence[Path]) -> Iterator[Path]:
    from pytest_benchflow.tasks import find_task_file

    for path in paths:
        for folder, names, _ in os.walk(path):
            names[:] = sorted(name for name in names if not name.startswith("."))
            if find_task_file(folder) is not None:
                names.clear()
                yield Path(folder)


def _schema() -> int:
    import json

    from pytest_benchflow.reporting import Report

    print(json.dumps(Report.model_json_schema(), indent=2))
    return 0
