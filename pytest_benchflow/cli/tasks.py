"""`bf tasks`: work on task directories."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchflow.cli.self_test import SelfTestOptions
    from pytest_benchflow.tasks import Task


def check(paths: Sequence[Path], *, strict: bool, run: SelfTestOptions | None = None) -> int:
    """Report every problem of the tasks below these paths, and run them; 1 if any is broken, 2 if a path holds none."""
    from pytest_benchflow.configfile import TaskError
    from pytest_benchflow.tasks import find_tasks, load_task

    tasks_by_path = {path: [*find_tasks(path.parent if _is_task_file(path) else path)] for path in paths}
    good: list[Task] = []
    broken = 0
    for directory in dict.fromkeys(task for tasks in tasks_by_path.values() for task in tasks):
        try:
            task = load_task(directory, strict=strict)
        except TaskError as error:
            print(error, file=sys.stderr)
            broken += 1
        else:
            good.append(task)
            for problem in task.warnings:
                print(f"{problem} (warning)", file=sys.stderr)
    if empty := [str(path) for path, tasks in tasks_by_path.items() if not tasks]:
        print(f"no task in {', '.join(empty)}; a task has a task.toml or a task.md", file=sys.stderr)
    if good or broken:
        print(f"{len(good) + broken} tasks, {broken} broken")
    status = 2 if empty else 1 if broken else 0
    if run is None or not good:
        return status
    from pytest_benchflow.cli.self_test import run_self_test

    return max(status, run_self_test(good, run))


def _is_task_file(path: Path) -> bool:
    return path.name in ("task.toml", "task.md") and path.is_file()
