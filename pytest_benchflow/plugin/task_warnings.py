"""Warnings about task files: each names its file and line, and equal ones are one warning with a count."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest

from pytest_benchflow.configfile import Problem


class TaskFileWarning(pytest.PytestWarning):
    """A task file has a key or value without a meaning."""


class TaskWarnings:
    """What the task files of a collection were warned of, until all of them are known."""

    def __init__(self) -> None:
        self._equal: dict[str, list[Problem]] = {}

    def add(self, node: pytest.Collector, problem: Problem) -> None:
        """Keep a warning for the end, unless the user's filters drop it or make an error of it."""
        try:
            with warnings.catch_warnings(record=True) as shown:
                _warn(problem, problem.text)
        except TaskFileWarning:
            raise node.CollectError(str(problem)) from None
        if shown:
            self._equal.setdefault(problem.text, []).append(problem)

    def tell(self) -> None:
        """Warn once of everything, at the place where it is first."""
        for text, problems in self._equal.items():
            _warn(problems[0], f"{text}{_count(problems)}")
        self._equal.clear()


def _count(problems: Sequence[Problem]) -> str:
    n_problems, n_tasks = len(problems), len({problem.file for problem in problems})
    if n_problems == 1:
        return ""
    if n_problems == n_tasks:
        return f" (the same in {n_tasks - 1:,} more task{'' if n_tasks == 2 else 's'})"
    return f" (the first of {n_problems:,} in {'this file' if n_tasks == 1 else f'{n_tasks:,} tasks'})"


def _warn(problem: Problem, text: str) -> None:
    warnings.warn_explicit(TaskFileWarning(text), None, problem.file, problem.line or 1)
