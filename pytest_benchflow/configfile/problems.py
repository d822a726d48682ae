"""What is wrong with a task file: where, which key, why, and what to write instead."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pytest_benchflow.core.errors import BenchflowError, Category

if TYPE_CHECKING:
    from collections.abc import Iterable


Severity = Literal["error", "warning"]
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to repair in one file; `str()` is the line the user reads."""

    file: str
    line: int | None
    key: str | None
    reason: str
    fix: str | None = None
    severity: Severity = "error"

    @property
    def place(self) -> str:
        """Where it is, as short as the user would write it."""
        return display(self.file) if self.line is None else f"{display(self.file)}:{self.line}"

    @property
    def text(self) -> str:
        """What it is and what to do, wherever it is."""
        what = self.reason if self.key is None else f"{self.key} {self.reason}"
        return f"{what}; {self.fix}" if self.fix else what

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class TaskError(BenchflowError):
    """A task that cannot be run as written; `problems` holds everything found, warnings included."""

    category = Category.TASK

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = in_order(problems)
        super().__init__("\n".join(summary_lines(self.problems)))

    def __reduce__(self) -> tuple[type[TaskError], tuple[tuple[Problem, ...]]]:
        return TaskError, (self.problems,)


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sort problems the way one reads files."""
    return tuple(sorted(problems, key=lambda problem: (problem.file, problem.line or 0)))


def summary_lines(problems: Iterable[Problem]) -> list[str]:
    """Return a line for each problem; those that a file has several times are one, with the other lines."""
    equal: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        equal.setdefault((problem.file, problem.text), []).append(problem)
    return [_counted(*same) for same in equal.values()]


def _counted(first: Problem, *others: Problem) -> str:
    lines = [str(problem.line) for problem in others if problem.line not in (None, first.line)]
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return f"{first} (also in line {', '.join(lines[:_SHOWN])}{more})" if lines else str(first)


def as_errors(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with every warning made an error."""
    return [replace(problem, severity="error") for problem in problems]


def display(path: str) -> str:
    """Shorten a path below the working directory to its relative form."""
    try:
        here = os.getcwd() + os.sep
    except OSError:
        return path
    return path[len(here) :] if path.startswith(here) else path
