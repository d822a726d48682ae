"""Say which settings of a task change nothing: what is declared is never ignored in silence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchflow.agents import Agent
    from pytest_benchflow.tasks import EnvironmentConfig, Task


def unheeded_notes(task: Task, agents: Sequence[Agent]) -> list[str]:
    """Return a note for every key that a rollout reads and does not act on, where a task is sound without it."""
    return [f"{task.short_name}: {note}" for note in dict.fromkeys(_notes(task, agents))]


def _notes(task: Task, agents: Sequence[Agent]) -> Iterator[str]:
    if task.config.reward:
        yield "[reward] has no effect: the verifier's reward counts as it is"
    if not all(agent.is_trusted for agent in agents):
        yield from _of_agents(task.config.environment)
    yield from _of_environment("environment", task.config.environment)
    for verifier in (stage.verifier for stage in task.stages):
        if verifier.pytest_plugins:
            yield "[verifier] pytest_plugins has no effect: pytest loads the plugins that the verifier's image has"
        if verifier.expected_skills:
            yield "[verifier.memory] expected_skills is not checked"
        if verifier.environment is not None:
            yield from _of_environment("verifier.environment", verifier.environment)
            for key in ("mcp_servers", "skills_dir"):
                if getattr(verifier.environment, key):
                    yield f"[verifier.environment] {key} has no effect: no agent works there"


def _of_agents(environment: EnvironmentConfig) -> Iterator[str]:
    if environment.skills_dir:
        yield "[environment] skills_dir is not given to the agent"
    for key in ("tools", "include_tags", "exclude_tags"):
        if any(getattr(server, key) for server in environment.mcp_servers):
            yield f"[[environment.mcp_servers]] {key} has no effect: the agent gets all tools of the server"


def _of_environment(where: str, environment: EnvironmentConfig) -> Iterator[str]:
    if environment.gpu_types and not environment.gpus:
        yield f"[{where}] gpu_types has no effect without gpus"
