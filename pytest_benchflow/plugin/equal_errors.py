"""Errors that many tasks have in common are shown once with a count; pytest's list at the end names every one."""

from __future__ import annotations

import copy
import re
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    Report = pytest.TestReport | pytest.CollectReport

_TASK_FILE = re.compile(r"[^\s]*\btask\.(?:toml|md)(?::\d+)?")
_NAMED = 3
_SHOW_ALL = 2


class EqualErrors:
    """Takes equal errors from the terminal's reporter while it prints its section of errors."""

    def __init__(self) -> None:
        self._all: list[Report] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
        """Have equal errors shown once, unless everything is to be seen."""
        self._all = terminalreporter.stats.get("error", [])
        if self._all and terminalreporter.verbosity < _SHOW_ALL:
            terminalreporter.stats["error"] = _fold(self._all)
        yield

    @pytest.hookimpl(specname="pytest_terminal_summary")
    def pytest_terminal_summary_after_errors(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Give the reporter every error back, to be listed and counted."""
        if self._all:
            terminalreporter.stats["error"] = self._all


def _fold(reports: list[Report]) -> list[Report]:
    """Return the reports without those that say of another task what an earlier one says, which gets their count."""
    equal: dict[object, list[Report]] = {}
    for number, report in enumerate(reports):
        equal.setdefault(_what(report) or number, []).append(report)
    return [first if not more else _with_count(first, more) for first, *more in equal.values()]


def _what(report: Report) -> str | None:
    """Return what a report says of a task file, without saying of which; None if it may say more."""
    text = report.longreprtext
    of_task = _TASK_FILE.search(report.nodeid) is not None
    category = ((getattr(report, "bf", None) or {}).get("error") or {}).get("category")
    if not of_task or not (isinstance(report, pytest.CollectReport) or category == "unsupported"):
        return None
    return _TASK_FILE.sub("", text.partition(" · ")[0])


def _with_count(report: Report, equal: list[Report]) -> Report:
    others = list(dict.fromkeys(other.nodeid for other in equal))
    names = ", ".join(others[:_NAMED]) + (" …" if len(others) > _NAMED else "")
    shown = copy.copy(report)
    shown.longrepr = f"{report.longreprtext}\n(the same {len(others):,} more time{'s'[: len(others) > 1]}: {names})"
    return shown
