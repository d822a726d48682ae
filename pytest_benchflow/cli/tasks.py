"""`bf tasks`: work on task directories."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def check(paths: Sequence[Path], *, strict: bool) -> int:
    """Report every problem of the tasks below these paths; 1 if any is broken, 2 if there is none."""
    from pytest_benchflow.tasks import TaskError, find_tasks, load_task

    good = broken = 0
    for directory in (task for path in paths for task in find_tasks(path)):
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
