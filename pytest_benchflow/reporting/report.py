"""The report of a whole run: one versioned model, from which the JSON file and the summary are made."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field

from pytest_benchflow.core.errors import Category
from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.jobs import wilson_interval
from pytest_benchflow.rollout import RolloutResult

SCHEMA_VERSION = "1.0"
N = TypeVar("N", int, float)
Status = Literal["passed", "failed", "error", "skipped", "quarantined"]
_SCORED = ("passed", "failed")


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
    pass_rate: float | None = None
    pass_rate_interval: tuple[float, float] | None = None
    mean_reward: float | None = None
    errors_by_category: dict[str, int] = {}
    n_tool_calls: int = 0
    tokens: int | None = None
    cost_usd: float | None = None
    seconds: float = Field(description="time of all rollouts added up")


class Report(_Record):
    """Everything `--bf-json` writes."""

    schema_version: str = SCHEMA_VERSION
    tool: str = "pytest-benchflow"
    tool_version: str
    python: str = Field(default_factory=platform.python_version)
    started_at: str
    finished_at: str
    exit_status: int
    job_dir: str | None
    summary: list[Group]
    rollouts: list[Entry]


def group(entries: Sequence[Entry]) -> list[Group]:
    """Return the summary, one group per agent × model × scene, in order of first appearance."""
    groups: dict[tuple[str, str | None, str | None], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.result.agent, entry.result.model, entry.result.scene), []).append(entry)
    return [_group(*key, members) for key, members in groups.items()]


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
    counts = {status: sum(entry.status == status for entry in entries) for status in get_args(Status)}
    results = [entry.result for entry in entries]
    scored = counts["passed"] + counts["failed"]
    rewards = [entry.result.reward for entry in entries if entry.status in _SCORED and entry.result.reward is not None]
    errors = [entry.result.error for entry in entries if entry.status == "error"]
    categories = [(error.category if error else Category.INTERNAL).value for error in errors]
    return Group(
        agent=agent,
        model=model,
        scene=scene,
        rollouts=len(entries),
        passed=counts["passed"],
        failed=counts["failed"],
        errors=counts["error"],
        skipped=counts["skipped"],
        quarantined=counts["quarantined"],
        pass_rate=counts["passed"] / scored if scored else None,
        pass_rate_interval=wilson_interval(counts["passed"], scored) if scored else None,
        mean_reward=math.fsum(rewards) / len(rewards) if rewards else None,
        errors_by_category={name: categories.count(name) for name in sorted(set(categories))},
        n_tool_calls=sum(result.n_tool_calls for result in results),
        tokens=_added([_tokens(result) for result in results]),
        cost_usd=_added([result.cost_usd for result in results]),
        seconds=round(math.fsum(result.timing.get("total", 0.0) for result in results), 3),
    )


def _tokens(result: RolloutResult) -> int | None:
    known = [n for n in (result.tokens.input, result.tokens.output) if n is not None]
    return sum(known) if known else None


def _added(values: Sequence[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
