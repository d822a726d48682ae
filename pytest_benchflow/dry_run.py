"""List the rollouts instead of running them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.agents import FREE_AGENTS, AgentRequest
from pytest_benchflow.credentials import lacking
from pytest_benchflow.errors import BenchflowError, CannotRunHere
from pytest_benchflow.items import RolloutItem
from pytest_benchflow.rollout import demand_variables, refuse_unsupported
from pytest_benchflow.this_run import Run

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Backend


def list_cells(session: pytest.Session, run: Run) -> bool:
    """Print the cells of the matrix and end the run."""
    items = [item for item in session.items if isinstance(item, RolloutItem)]
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and not session.testsfailed:
        reporter.section("dry run")
        for line in _lines(run, items):
            reporter.line(line)
    return True


def _lines(run: Run, items: Sequence[RolloutItem]) -> list[str]:
    """Return the cells, what each lacks to run, and what all of them could cost."""
    known: dict[str, str | None] = {}
    for item in items:
        if item.cell.name not in known:
            known[item.cell.name] = lacking(run, item.cell, Path(item.head.file))
    backend, trouble = _backend(run)
    lines = [f"{item.nodeid}  {_lacks(run, item, backend) or known[item.cell.name] or 'ready'}" for item in items]
    paid = sum(item.cell.agent not in FREE_AGENTS for item in items)
    cost = f"{paid} call a model" if paid else "none calls a model, so they cost nothing"
    return [*lines, "", *trouble, f"{len(items)} rollouts on {run.sandbox_name}, {run.in_flight} at a time; {cost}"]


def _backend(run: Run) -> tuple[Backend, list[str]]:
    """Return the backend, which knows what it can do once it has looked, and why it could not run anything."""
    try:
        return run.engine.call(run.resources.backend(run.sandbox_name)), []
    except BenchflowError as error:
        return run.sandboxes.create(run.sandbox_name), [f"nothing can run: {error}"]


def _lacks(run: Run, item: RolloutItem, backend: Backend) -> str | None:
    """Return what keeps one rollout from running, as far as can be known without starting anything."""
    skip = item.get_closest_marker("skip")
    if skip is not None:
        return f"will be skipped: {skip.kwargs.get('reason', '')}"
    agent = run.agents.get(item.cell.agent)
    try:
        task = run.task_of(item)
        if (reason := agent.why_not(task)) is not None:
            return f"will be skipped: {reason}"
        refuse_unsupported(task, backend, [agent])
        demand_variables(task)
        if agent.is_trusted:
            agent.access(task, AgentRequest(env=run.settings.agent_env))
    except CannotRunHere as reason:
        return f"will be skipped: {reason}"
    except BenchflowError as error:
        return str(error)
    return None
