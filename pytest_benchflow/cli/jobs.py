"""`bf metrics`: look at what a job has left."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.text import one_line

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json
    from pytest_benchflow.rollout import RolloutResult


_SHOWN = (
    "total",
    "passed",
    "failed",
    "errored",
    "verifier_errored",
    "skipped",
    "cancelled",
    "pass_rate",
    "mean_reward",
)
_ADVICE = "name a job, or a folder of jobs"
_ALSO = ("avg_tool_calls", "avg_duration_sec", "total_tokens", "total_cost_usd")


def show_metrics(directory: Path, *, benchmark: str, agent: str, model: str, as_json: bool) -> int:
    """Print the metrics of a finished job, as a table or as JSON."""
    from pytest_benchflow.jobs import collect_metrics

    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory", advice=_ADVICE)
    metrics = collect_metrics(directory, benchmark, agent, model)
    for path in metrics.unreadable:
        print(f"{path} cannot be read", file=sys.stderr)
    for path in metrics.unfinished:
        print(f"{path} has no result: it was killed, or still runs", file=sys.stderr)
    if not metrics.results:
        raise UsageError(f"there is no result in {directory}", advice=_ADVICE)
    summary = metrics.summary()
    print(json.dumps(summary, indent=2) if as_json else "\n".join(_lines(metrics.results, summary)))
    return 0


def _lines(results: Sequence[RolloutResult], summary: dict[str, Json]) -> list[str]:
    """Return the table that pytest shows at the end of a run, and what else was counted."""
    from pytest_benchflow.reporting import entries_of, group, summary_lines

    rows = [(key.replace("_", " "), _text(summary[key])) for key in (*_SHOWN, *_ALSO) if summary[key] is not None]
    if summary["cost_is_partial"]:
        rows = [(name, f"{text} (partial)" if name == "total cost usd" else text) for name, text in rows]
    for key in ("pass_rate_interval", "mean_reward_interval"):
        if (interval := summary[key]) is not None:
            assert isinstance(interval, list)
            rows.append((key.replace("_", " "), "–".join(map(_text, interval))))
    width = max(len(name) for name, _ in rows)
    heading = one_line(" ".join(str(summary[key]) for key in ("benchmark", "agent", "model") if summary[key]))
    table = summary_lines(group(entries_of(results)))
    return [heading, *table, *(f"  {name.ljust(width)}  {text}" for name, text in rows)]


def _text(value: Json) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
