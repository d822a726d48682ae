"""`bf tasks`: work on task directories."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.text import counted

if TYPE_CHECKING:
    from pytest_benchflow.cli.self_test import SelfTestOptions
    from pytest_benchflow.configfile import Problem
    from pytest_benchflow.tasks import Task

_SHOWN_PLACES = {"warning": 10, "error": 100}


def check(paths: Sequence[Path], *, strict: bool, run: SelfTestOptions | None = None, as_json: bool = False) -> int:
    """Report every problem of the tasks below these paths, and run them; 1 if any is broken, 2 if a path holds none."""
    from pytest_benchflow.configfile import TaskError
    from pytest_benchflow.tasks import environment_problem, find_tasks, load_task

    tasks_by_path = {path: [*find_tasks(path.parent if _is_task_file(path) else path)] for path in paths}
    good: list[Task] = []
    broken = 0
    equal: dict[tuple[str, str], list[Problem]] = {}
    for directory in dict.fromkeys(task for tasks in tasks_by_path.values() for task in tasks):
        problems: Sequence[Problem]
        try:
            task = load_task(directory, strict=strict)
            _read_rubrics(task)
        except TaskError as error:
            problems = error.problems
            broken += 1
        else:
            problems = task.warnings
            if (problem := environment_problem(task)) is not None:
                problems = [*problems, problem]
                broken += 1
            else:
                good.append(task)
        for problem in problems:
            part = "" if problem.line else os.path.relpath(problem.file, directory)
            equal.setdefault((part, re.sub('".*?"', "", _line(problem))), []).append(problem)
    for problems in () if as_json else equal.values():
        print(f"{problems[0].place}: {_line(problems[0])}", *_others(problems), sep="\n", file=sys.stderr)
    if empty := [str(path) for path, tasks in tasks_by_path.items() if not tasks]:
        print(f"no task in {', '.join(empty)}; a task has a task.toml or a task.md", file=sys.stderr)
    if as_json:
        listed = [_plain(problem) for problems in equal.values() for problem in problems]
        print(json.dumps({"tasks": len(good) + broken, "broken": broken, "problems": listed}, indent=2))
    elif good or broken:
        print(f"{counted(len(good) + broken, 'task')}, {broken} broken")
    status = 2 if empty else 1 if broken else 0
    if run is None or not good:
        return status
    from pytest_benchflow.cli.self_test import run_self_test

    return max(status, run_self_test(good, run))


def _read_rubrics(task: Task) -> None:
    """Raise what is wrong with the rubrics of judges."""
    rubrics = [step.verifier.rubric for step in task.steps if step.verifier.rubric is not None]
    if rubrics:
        from pytest_benchflow.verify import load_rubric

        for rubric in dict.fromkeys(rubrics):
            load_rubric(rubric)


def _plain(problem: Problem) -> dict[str, object]:
    keys = ("file", "line", "key", "severity")
    return {**{key: getattr(problem, key) for key in keys}, "message": problem.text}


def _line(problem: Problem) -> str:
    return f"{problem.text} (warning)" if problem.severity == "warning" else problem.text


def _others(problems: Sequence[Problem]) -> list[str]:
    """Return one line that counts the places with the same problem and names some of them; nothing for one place."""
    places = [problem.place for problem in problems[1:]]
    limit = _SHOWN_PLACES[problems[0].severity]
    more = ", …" if len(places) > limit else ""
    return [f"  and {len(places):,} more: {', '.join(places[:limit])}{more}"] if places else []


def _is_task_file(path: Path) -> bool:
    return path.name in ("task.toml", "task.md") and path.is_file()
