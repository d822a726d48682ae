"""The summary as text: a table by agent × model × scene that fits a terminal and a log."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_benchflow.core.text import duration, one_line
from pytest_benchflow.reporting.report import Group

_HEADINGS = (
    "agent", "passed", "pass rate", "over trials", "reward", "errors", "skipped", "quarantined", "cancelled", "tools",
    "tokens", "cost", "time"
)  # fmt: skip


def summary_lines(groups: Sequence[Group]) -> list[str]:
    """Return the table, one row per group."""
    rows = summary_rows(groups)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def summary_rows(groups: Sequence[Group]) -> list[list[str]]:
    """Return the cells of the table, headings first, without the columns that say nothing."""
    rows = [_HEADINGS, *(_row(group) for group in groups)]
    used = [i for i in range(len(_HEADINGS)) if any(row[i] != "–" for row in rows[1:])]
    return [[row[i] for i in used] for row in rows]


def _row(group: Group) -> tuple[str, ...]:
    scored = group.passed + group.failed
    return (
        one_line("/".join(part for part in (group.agent, group.model, group.scene) if part)),
        f"{group.passed} of {scored}" if scored else "–",
        _rate(group) if scored else "–",
        _over_trials(group),
        _reward(group),
        _errors(group),
        str(group.skipped) if group.skipped else "–",
        str(group.quarantined) if group.quarantined else "–",
        str(group.cancelled) if group.cancelled else "–",
        str(group.n_tool_calls) if group.n_tool_calls else "–",
        "–" if group.tokens is None else f"{group.tokens:,}",
        "–" if group.cost_usd is None else f"${group.cost_usd:.2f}" + (" (partial)" if group.cost_is_partial else ""),
        duration(group.seconds),
    )


def _rate(group: Group) -> str:
    assert group.pass_rate is not None
    assert group.pass_rate_interval is not None
    low, high = group.pass_rate_interval
    return f"{group.pass_rate:.0%} ({low:.0%}–{high:.0%})"


def _over_trials(group: Group) -> str:
    """Return pass@k and pass^k for the largest k above 1."""
    k = max(group.pass_at_k, key=int, default="1")
    return "–" if k == "1" else f"pass@{k} {group.pass_at_k[k]:.2f}, pass^{k} {group.pass_all_k[k]:.2f}"


def _reward(group: Group) -> str:
    """Return the mean reward; its interval says nothing new where rewards are the pass rate."""
    if group.mean_reward is None:
        return "–"
    if group.mean_reward_interval is None or group.mean_reward == group.pass_rate:
        return f"{group.mean_reward:.2f}"
    low, high = group.mean_reward_interval
    return f"{group.mean_reward:.2f} ({low:.2f}–{high:.2f})"


def _errors(group: Group) -> str:
    if not group.errors:
        return "–"
    return ", ".join(f"{count} {name}" for name, count in group.errors_by_category.items())
