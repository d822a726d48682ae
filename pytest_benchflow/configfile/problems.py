"""What is wrong with a task file: where, which key, why, and what to write instead."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pytest_benchflow.core.errors import BenchflowError, Category

if TYPE_CHECKING:
    from collections.abc import Iterable


Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to repair in one file; `str()` is the line the user reads."""

    file: str
    line: int | None
    key: str | None
    reason: str
    fix: str | None = None
    severity: Severity = "error"

    def __str__(self) -> str:
        place = display(self.file) if self.line is None else f"{display(self.file)}:{self.line}"
        what = self.reason if self.key is None else f"{self.key} {self.reason}"
        return f"{place}: {what}; {self.fix}" if self.fix else f"{place}: {what}"


class TaskError(BenchflowError):
    """A task that cannot be run as written; `problems` holds everything found, warnings included."""

    category = Category.TASK

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = in_order(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[TaskError], tuple[tuple[Problem, ...]]]:
        return TaskError, (self.problems,)


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sort problems the way one reads files."""
    return tuple(sorted(problems, key=lambda problem: (problem.file, problem.line or 0)))


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
