"""The report of a whole run: one versioned model, from which the JSON file and the summary are made."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.jobs import Comparison, GateVerdict, Saved, Tally
from pytest_benchflow.rollout import RolloutResult

SCHEMA_VERSION = "1.0"
Status = Literal["passed", "failed", "error", "skipped", "quarantined", "cancelled"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Entry(_Record):
    """One rollout in the report."""

    id: str = Field(description="the item's node id")
    status: Status
    result: RolloutResult


class Group(_Record):
    """The rollouts of one agent, model and scene taken together; rates are over those that were scored."""

    agent: str
    model: str | None
    scene: str | None
    rollouts: int
    passed: int
    failed: int
    errors: int
    skipped: int
    quarantined: int
    cancelled: int = Field(default=0, description="stopped with the run before they ended")
    pass_rate: float | None = None
    pass_rate_interval: tuple[float, float] | None = None
    mean_reward: float | None = None
    mean_reward_interval: tuple[float, float] | None = None
    pass_at_k: dict[str, float] = Field(default={}, description="chance that one of k trials passes, by k")
    pass_all_k: dict[str, float] = Field(default={}, description="chance that all of k trials pass, by k")
    errors_by_category: dict[str, int] = {}
    n_tool_calls: int = 0
    tokens: int | None = None
    cost_usd: float | None = None
    cost_is_partial: bool = Field(default=False, description="whether the cost of some prompts is unknown")
    seconds: float = Field(description="time of all rollouts added up")


class Report(_Record):
    """Everything `--bf-json` writes."""

    schema_version: str = SCHEMA_VERSION
    tool: str = "pytest-benchflow"
    tool_version: str
    python: str = Field(default_factory=platform.python_version)
    started_at: str
    finished_at: str
    exit_status: int | None = Field(description="pytest's; null in a report that was made of a job's directory")
    job_dir: str | None
    shard: tuple[int, int] | None = Field(default=None, description="which slice of how many it is")
    gates: list[GateVerdict] = Field(default=[], description="what became of the run's gates")
    baseline: Comparison | None = Field(default=None, description="how it compares with an earlier run")
    saved: Saved | None = Field(default=None, description="what did not have to run because all gates were decided")
    missing: list[str] = Field(default=[], description="rollouts that were selected and never reported")
    failed_tests: int = Field(default=0, description="how many failures were not of rollouts but of ordinary tests")
    summary: list[Group]
    rollouts: list[Entry]


def group(entries: Sequence[Entry]) -> list[Group]:
    """Return the summary, one group per agent × model × scene, in order of first appearance."""
    groups: dict[tuple[str, str | None, str | None], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.result.agent, entry.result.model, entry.result.scene), []).append(entry)
    return [_group(*key, members) for key, members in groups.items()]


def entries_of(results: Sequence[RolloutResult]) -> list[Entry]:
    """Return results on disk as entries of a report, in its order, each with the status that it has by itself."""
    ordered = sorted(results, key=_order)
    return [Entry(id=result.key or result.rollout_name, status=result.status, result=result) for result in ordered]


def _order(result: RolloutResult) -> tuple[str, str, str, str, str, int]:
    """Directories of rollouts are named by chance: what belongs together stands together, and always in one order."""
    who = result.agent, result.model or "", result.scene or ""
    return result.task_name, str(result.task_path), *who, result.trial


def write_report(report: Report, path: Path) -> None:
    """Write the report atomically; parents are made, links are followed, and devices and pipes stay what they are."""
    text = report.model_dump_json(indent=2) + "\n"
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def _group(agent: str, model: str | None, scene: str | None, entries: Sequence[Entry]) -> Group:
    tally = Tally([entry.result for entry in entries], [entry.status for entry in entries])
    at_k, all_k = tally.chances
    return Group(
        agent=agent,
        model=model,
        scene=scene,
        rollouts=len(entries),
        passed=tally.n("passed"),
        failed=tally.n("failed"),
        errors=tally.n("error"),
        skipped=tally.n("skipped"),
        quarantined=tally.n("quarantined"),
        cancelled=tally.n("cancelled"),
        pass_rate=tally.pass_rate,
        pass_rate_interval=tally.pass_rate_interval,
        mean_reward=tally.mean_reward,
        mean_reward_interval=tally.mean_reward_interval,
        pass_at_k=at_k,
        pass_all_k=all_k,
        errors_by_category=tally.errors_by_category,
        n_tool_calls=tally.n_tool_calls,
        tokens=tally.tokens,
        cost_usd=tally.cost_usd,
        cost_is_partial=tally.cost_is_partial,
        seconds=round(tally.seconds, 3),
    )
