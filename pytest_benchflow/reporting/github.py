"""What GitHub Actions shows of a run: a summary on the job's page, and annotations at the task files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.text import one_line
from pytest_benchflow.reporting.markdown import markdown_text
from pytest_benchflow.reporting.reasons import reason

if TYPE_CHECKING:
    from pytest_benchflow.reporting.report import Entry, Report

_MOST = 10
"""Of each kind, GitHub shows this many annotations of a step."""
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}
_KINDS = {"error": "error", "failed": "error", "quarantined": "warning"}


def is_github(env: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process runs in GitHub Actions."""
    return env.get("GITHUB_ACTIONS") == "true"


def add_step_summary(report: Report, env: Mapping[str, str] = os.environ) -> None:
    """Append the report to the summary of the job, if there is one."""
    path = env.get("GITHUB_STEP_SUMMARY")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(markdown_text(report) + "\n")


def annotation_lines(report: Report, root: Path, *, advisory: bool = False) -> Iterator[str]:
    """Yield a workflow command for each gate, and for each rollout that failed or broke.

    `advisory` makes warnings of low rewards; so do gates, for they decide and not the single rollout.
    """
    shown: Counter[str] = Counter()
    for gate in report.gates:
        if gate.blocks:
            shown["error"] += 1
            title = _escaped(f"gate {gate.gate}", _PROPERTY)
            yield f"::error title={title}::{_escaped(one_line(f'{gate.outcome}: {gate.message}', 500), _DATA)}"
    advisory = advisory or bool(report.gates)
    for status in _KINDS:
        kind = "warning" if advisory and status == "failed" else _KINDS[status]
        for entry in report.rollouts:
            if entry.status == status and shown[kind] < _MOST:
                shown[kind] += 1
                yield _command(kind, entry, root)


def _command(kind: str, entry: Entry, root: Path) -> str:
    result = entry.result
    file = Path(root, entry.id.partition("::")[0]) if "::" in entry.id else Path(result.task_path, "task.toml")
    place = {"file": os.path.relpath(file, os.environ.get("GITHUB_WORKSPACE") or Path.cwd()), "line": "1"}
    place["title"] = one_line(f"{result.task_name} · {entry.id.rpartition('::')[2]}")
    properties = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in place.items())
    return f"::{kind} {properties}::{_escaped(one_line(reason(result), 500), _DATA)}"


def _escaped(text: str, table: Mapping[str, str]) -> str:
    return "".join(table.get(letter, letter) for letter in text)
