"""What the pages show, as JSON: the overview of a run, and all there is to know of one rollout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_benchflow.core.text import one_line
from pytest_benchflow.jobs import Tally
from pytest_benchflow.reporting.html.rollout_files import config_of, events_json, verifier_output
from pytest_benchflow.reporting.reasons import reason

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json
    from pytest_benchflow.reporting.report import Entry, Report
    from pytest_benchflow.rollout import RolloutResult

#: Of a longer trajectory the pages have the start and the end.
MOST_BYTES = 4 << 20
_MESSAGE = 300


def overview_of(report: Report, title: str) -> dict[str, Json]:
    """Return the overview of a report."""
    return {
        "title": title,
        "tool": f"{report.tool} {report.tool_version}",
        "started_at": report.started_at,
        "finished_at": report.finished_at,
        "exit_status": report.exit_status,
        "job_dir": report.job_dir,
        "gates": [gate.model_dump(mode="json") for gate in report.gates],
        "baseline": None if report.baseline is None else report.baseline.model_dump(mode="json"),
        "saved": _saved(report),
        "missing": [*report.missing],
        "totals": _totals(report.rollouts),
        "groups": [group.model_dump(mode="json") for group in report.summary],
        "rollouts": [row_of(number, entry) for number, entry in enumerate(report.rollouts)],
    }


def _saved(report: Report) -> str | None:
    if report.saved is None:
        return None
    from pytest_benchflow.reporting.judgement import saved_words

    return saved_words(report.saved)


def _totals(entries: Sequence[Entry]) -> dict[str, Json]:
    tally = Tally([entry.result for entry in entries], [entry.status for entry in entries])
    return {
        "rollouts": len(entries),
        "tasks": len({entry.result.task_path for entry in entries}),
        "passed": tally.n("passed"),
        "failed": tally.n("failed"),
        "errors": tally.n("error"),
        "errors_by_category": {**tally.errors_by_category},
        "pass_rate": tally.pass_rate,
        "pass_rate_interval": _listed(tally.pass_rate_interval),
        "mean_reward": tally.mean_reward,
        "mean_reward_interval": _listed(tally.mean_reward_interval),
        "tool_calls": tally.n_tool_calls,
        "tokens": tally.tokens,
        "cost_usd": tally.cost_usd,
        "cost_is_partial": tally.cost_is_partial,
        "seconds": tally.seconds,
    }


def _listed(interval: tuple[float, float] | None) -> Json:
    return None if interval is None else [*interval]


def row_of(number: int, entry: Entry) -> dict[str, Json]:
    """Return what the table of rollouts shows of one."""
    result = entry.result
    return {
        "n": number,
        "id": entry.id,
        "status": entry.status,
        "task": result.task_name,
        "agent": result.agent,
        "model": result.model,
        "scene": result.scene,
        "trial": result.trial,
        "reward": result.reward,
        "seconds": result.timing.get("total"),
        "timing": {phase: seconds for phase, seconds in result.timing.items() if phase != "total"},
        "tokens": result.spent_tokens,
        "tools": result.n_tool_calls,
        "cost": result.spent_usd,
        "category": None if result.error is None else result.error.category.value,
        "integrity": len(result.integrity),
        "message": one_line(reason(result), _MESSAGE) or None,
    }


def rollout_json(result: RolloutResult, limit: int = MOST_BYTES) -> bytes:
    """Return everything about a rollout as JSON, with at most about `limit` bytes of its trajectory."""
    directory = result.rollout_dir
    events, note = (b"[]", None) if directory is None else events_json(directory, limit)
    rest: dict[str, Json] = {
        "result": result.model_dump(mode="json"),
        "verifier": None if directory is None else verifier_output(directory),
        "config": None if directory is None else config_of(directory),
        "left_out": note,
    }
    text = json.dumps(rest, ensure_ascii=True, allow_nan=False)
    return text[:-1].encode() + b', "events": ' + events + b"}"
