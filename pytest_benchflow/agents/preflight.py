"""Find out, before anything starts, what keeps an agent from reaching its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.errors import BenchflowError

if TYPE_CHECKING:
    from pytest_benchflow.agents.base import Agent, AgentRequest
    from pytest_benchflow.tasks import Task


def missing_access(agent: Agent, task: Task, request: AgentRequest) -> BenchflowError | None:
    """Return what an agent lacks to do as it is asked, None if nothing; nothing is started or written for it."""
    try:
        agent.access(task, request)
    except BenchflowError as error:
        return error
    return None
