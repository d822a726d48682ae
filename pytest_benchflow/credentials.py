"""What agents lack to reach their models, found for the whole matrix at once before anything starts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.errors import BenchflowError, CredentialsError

if TYPE_CHECKING:
    from pytest_benchflow.matrix import Cell
    from pytest_benchflow.this_run import Run


def refuse_missing(run: Run, cells: Iterable[Cell], task_file: Path) -> None:
    """Raise one error that lists everything the selected cells lack, unless they are to be skipped."""
    if run.settings.missing_credentials == "skip":
        return
    found = {lack: cell for cell in cells if (lack := lacking(run, cell, task_file)) is not None}
    if found:
        lines = "\n".join(f"  {_who(cell)}: {lack}" for lack, cell in found.items())
        advice = "to skip these rollouts instead, use --bf-missing-credentials skip"
        raise CredentialsError(f"nothing was started, because some agents cannot reach a model:\n{lines}\n{advice}")


def lacking(run: Run, cell: Cell, task_file: Path) -> str | None:
    """Return what keeps a cell's agent from reaching its model; credentials are the same for every task."""
    from pytest_benchflow.agents import AgentRequest
    from pytest_benchflow.tasks import MissingVariables, TaskError, load_task

    agent = run.agents.get(cell.agent)
    if agent.is_trusted:
        return None
    request = AgentRequest(cell.model, run.settings.effort, run.settings.agent_env)
    try:
        agent.access(load_task(task_file), request)
    except (TaskError, MissingVariables):
        return None  # a fault of this one task, which its own rollout will tell
    except BenchflowError as error:
        return str(error)
    return None


def _who(cell: Cell) -> str:
    return "/".join(part for part in (cell.agent, cell.model) if part)
