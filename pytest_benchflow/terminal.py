"""What the user sees: a header when the items are known, a summary at the end; only where pytest was started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.credentials import lacking

if TYPE_CHECKING:
    from pytest_benchflow.items import RolloutItem
    from pytest_benchflow.this_run import Run


def header(run: Run, n_items: int) -> str:
    """Return one line: who runs, where and why there, how many, and where the results go."""
    agents = ", ".join(
        "/".join(part for part in (agent.name, model) if part)
        for agent in run.settings.agents
        for model in agent.models
    )
    what = f"{n_items} rollout" + ("" if n_items == 1 else "s")
    place = run.settings.jobs_dir / run.job_name
    return (
        f"benchflow: {what} · agent {agents} · sandbox {run.sandbox_name} ({run.sandbox_reason}) · "
        f"{run.in_flight} at a time · results in {run.shown(str(place))}"
    )


def dry_run_lines(run: Run, items: Sequence[RolloutItem]) -> list[str]:
    """Return the cells, what each lacks to run, and what all of them could cost."""
    known: dict[str, str | None] = {}
    for item in items:
        if item.cell.name not in known:
            known[item.cell.name] = lacking(run, item.cell, Path(item.head.file))
    lines = [f"{item.nodeid}  {_lacks(item) or known[item.cell.name] or 'ready'}" for item in items]
    paid = sum(item.cell.agent not in FREE_AGENTS for item in items)
    cost = f"{paid} call a model" if paid else "none calls a model, so they cost nothing"
    return [*lines, "", f"{len(items)} rollouts on {run.sandbox_name}, {run.in_flight} at a time; {cost}"]


def _lacks(item: RolloutItem) -> str | None:
    if item.cell.agent == "oracle" and not item.head.has_solution:
        return "will be skipped: no oracle solution"
    skip = item.get_closest_marker("skip")
    return f"will be skipped: {skip.kwargs.get('reason', '')}" if skip is not None else None
