"""Before anything starts: what agents lack to reach their models, found for all cells at once; and the dry run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.agents import FREE_AGENTS, AgentRequest
from pytest_benchflow.core.errors import BenchflowError, CannotRunHere, CredentialsError
from pytest_benchflow.plugin.items import RolloutItem
from pytest_benchflow.plugin.session import BenchSession
from pytest_benchflow.rollout import refuse_unsupported, require_variables

if TYPE_CHECKING:
    from pytest_benchflow.jobs import Cell
    from pytest_benchflow.sandboxes import Backend


def refuse_missing(run: BenchSession, cells: Iterable[Cell], task_file: Path) -> None:
    """Raise one error that lists everything the selected cells lack, unless they are to be skipped."""
    if run.defaults.missing_credentials == "skip":
        return
    lacks = {lack: cell for cell in cells if (lack := lacking(run, cell, task_file)) is not None}
    if lacks:
        lines = "\n".join(f"  {_who(cell)}: {lack}" for lack, cell in lacks.items())
        advice = "to skip these rollouts instead, use --bf-missing-credentials skip"
        raise CredentialsError(f"nothing was started, because some agents cannot reach a model:\n{lines}\n{advice}")


def lacking(run: BenchSession, cell: Cell, task_file: Path) -> str | None:
    """Return what keeps a cell's agent from reaching its model; credentials are the same for every task."""
    from pytest_benchflow.agents import AgentRequest
    from pytest_benchflow.configfile import MissingVariables, TaskError
    from pytest_benchflow.tasks import load_task

    agent = run.agents.get(cell.agent)
    if not agent.calls_model:
        return None
    request = AgentRequest(cell.model, run.defaults.reasoning_effort, run.defaults.agent_env)
    try:
        agent.access(load_task(task_file), request)
    except (TaskError, MissingVariables):
        return None  # a fault of this one task, which its own rollout will tell
    except BenchflowError as error:
        return str(error)
    return None


def _who(cell: Cell) -> str:
    return "/".join(part for part in (cell.agent, cell.model) if part)


def list_cells(session: pytest.Session, run: BenchSession) -> bool:
    """Print the cells of the matrix and end the run."""
    items = [item for item in session.items if isinstance(item, RolloutItem)]
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and not session.testsfailed:
        reporter.section("dry run")
        for line in _lines(run, items):
            reporter.line(line)
    return True


def _lines(run: BenchSession, items: Sequence[RolloutItem]) -> list[str]:
    """Return the cells, what each lacks to run, and what all of them could cost."""
    known: dict[str, str | None] = {}
    for item in items:
        if item.cell.name not in known:
            known[item.cell.name] = lacking(run, item.cell, Path(item.summary.file))
    backend, trouble = _backend(run)
    lines = [f"{item.nodeid}  {_lacks(run, item, backend) or known[item.cell.name] or 'ready'}" for item in items]
    paid = sum(item.cell.agent not in FREE_AGENTS for item in items)
    cost = f"{paid} call a model" if paid else "none calls a model, so they cost nothing"
    return [*lines, "", *trouble, f"{len(items)} rollouts on {run.sandbox_name}, {run.in_flight} at a time; {cost}"]


def _backend(run: BenchSession) -> tuple[Backend, list[str]]:
    """Return the backend, which knows what it can do once it has looked, and why it could not run anything."""
    try:
        return run.engine.call(run.resources.backend(run.sandbox_name)), []
    except BenchflowError as error:
        return run.sandboxes.create(run.sandbox_name), [f"nothing can run: {error}"]


def _lacks(run: BenchSession, item: RolloutItem, backend: Backend) -> str | None:
    """Return what keeps one rollout from running, as far as can be known without starting anything."""
    skip = item.get_closest_marker("skip")
    if skip is not None:
        return f"will be skipped: {skip.kwargs.get('reason', '')}"
    agent = run.agents.get(item.cell.agent)
    try:
        task = run.task_of(item)
        if (reason := agent.skip_reason(task)) is not None:
            return f"will be skipped: {reason}"
        refuse_unsupported(task, backend, [agent])
        require_variables(task)
        if not agent.calls_model:
            agent.access(task, AgentRequest(env=run.defaults.agent_env))
    except CannotRunHere as reason:
        return f"will be skipped: {reason}"
    except BenchflowError as error:
        return str(error)
    return None
