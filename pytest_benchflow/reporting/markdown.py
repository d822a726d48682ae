"""A report as Markdown: for one comment under a change, which later runs replace, and for the summary of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.core.text import distinct_names, one_line
from pytest_benchflow.jobs import comparison_lines
from pytest_benchflow.reporting.reasons import reason
from pytest_benchflow.reporting.summary import summary_rows
from pytest_benchflow.verify import listed_findings

if TYPE_CHECKING:
    from pytest_benchflow.reporting.report import Entry, Report

MARK = "<!-- pytest-benchflow -->"
"""The first line: whoever posts the comment finds the one of an earlier run by it, and replaces it."""
_LONGEST = 60_000
"""Code hosts refuse comments of more than 65,536 characters."""
_SIGNS = {"error": "💥", "failed": "❌", "cancelled": "⏹️", "quarantined": "🔶"}
_STRUCTURE = re.compile(r"[^\w\s.,;/()+='\"–·…%-]|_|(?<=/)/|(?<=www)\.")
_SHOWN_CHANGES = 12
_NAMES = ("agent", "model", "scene")


def markdown_text(report: Report) -> str:
    """Return the report; nothing that agents or tasks wrote becomes markup, a link or a mention in it."""
    lines = [MARK, f"### {_heading(report)}", "", *_gates(report), *_table(summary_rows(report.summary)), ""]
    if report.baseline is not None:
        lines += [f"- {literal(line)}" for line in comparison_lines(report.baseline)[:_SHOWN_CHANGES]] + [""]
    room = _LONGEST - sum(len(line) + 1 for line in lines)
    for title, rows in _sections(report):
        lines += _within(title, rows, room // 2)
        room = _LONGEST - sum(len(line) + 1 for line in lines)
    return "\n".join(lines)


def write_markdown(report: Report, path: Path) -> None:
    """Write the report atomically; parents are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, markdown_text(report))


def literal(text: str, limit: int = 300) -> str:
    """Return foreign text as one line that Markdown shows as it is."""
    return _STRUCTURE.sub(lambda match: f"&#{ord(match[0])};", one_line(text, limit))


def _heading(report: Report) -> str:
    statuses = [entry.status for entry in report.rollouts]
    passed, scored = statuses.count("passed"), statuses.count("passed") + statuses.count("failed")
    errors, blocked = statuses.count("error"), any(gate.blocks for gate in report.gates)
    is_good = not blocked if report.gates else passed == scored and not errors
    sign = "✅" if is_good else "💥" if errors and not report.gates else "❌"
    more = f", {errors} error{'s' if errors > 1 else ''}" if errors else ""
    return f"{sign} {passed} of {scored} rollouts passed{more}"


def _gates(report: Report) -> list[str]:
    """Return a line for each gate."""
    signs = {"passed": "✅", "failed": "❌"}
    lines = [f"- {signs.get(gate.outcome, '⚠️')} {literal(gate.gate)}: {literal(gate.message)}" for gate in report.gates]
    return [*lines, ""] if lines else []


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    head, *body = rows
    yield _row(head)
    yield "|" + " --- |" * len(head)
    yield from map(_row, ([literal(cell) for cell in row] for row in body))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _sections(report: Report) -> Iterator[tuple[str, list[str]]]:
    """Yield what did not pass, the worst first, each as a title and the rows of a table."""
    names = distinct_names((entry.result.task_name, entry.result.task_path) for entry in report.rollouts)
    head = [_row(("task", "agent", "reward", "why")), "| --- | --- | --- | --- |"]
    for status, sign in _SIGNS.items():
        entries = [entry for entry in report.rollouts if entry.status == status]
        if entries:
            rows = (_cells(entry, names[entry.result.task_name, entry.result.task_path]) for entry in entries)
            title = f"{sign} {len(entries)} {status if len(entries) == 1 or status != 'error' else 'errors'}"
            yield title, [*head, *map(_row, rows)]
    tripped = [entry for entry in report.rollouts if entry.result.integrity]
    if tripped:
        rows = (_cells(entry, names[entry.result.task_name, entry.result.task_path]) for entry in tripped)
        texts = (literal(listed_findings(entry.result.integrity)) for entry in tripped)
        yield (
            f"🛡️ {len(tripped)} tripped a defence",
            [*head, *(_row((*row[:3], text)) for row, text in zip(rows, texts, strict=True))],
        )


def _cells(entry: Entry, task: str) -> tuple[str, ...]:
    result = entry.result
    who = "/".join(part for part in (getattr(result, name) for name in _NAMES) if part)
    trial = f" · {result.trial}" if result.trial > 1 else ""
    reward = "–" if result.reward is None else f"{result.reward:g}"
    return literal(task), literal(f"{who}{trial}"), reward, literal(reason(result))


def _within(title: str, rows: list[str], room: int) -> list[str]:
    """Return a folded section with as many of its rows as there is room for."""
    kept, size = [*rows[:2]], 0
    for row in rows[2:]:
        size += len(row) + 1
        if size > room:
            break
        kept.append(row)
    left_out = len(rows) - len(kept)
    more = [f"\n{left_out} more are in the report."] if left_out else []
    return [f"<details><summary>{title}</summary>", "", *kept, *more, "", "</details>", ""]
