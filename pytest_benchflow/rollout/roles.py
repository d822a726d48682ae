"""Who plays in a rollout: each role with its agent, what it asks of it, and how that reaches its model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents import Access, Agent, AgentRegistry, AgentRequest
from pytest_benchflow.core.errors import BenchflowError, CannotRunHere, CredentialsError

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.scenes import Role
    from pytest_benchflow.sandboxes import Mount
    from pytest_benchflow.tasks import Task


@dataclass(frozen=True, slots=True)
class Part:
    """One role, cast."""

    role: Role
    agent: Agent
    request: AgentRequest
    access: Access


class Cast:
    """The parts of a rollout; making them checks that every agent can run and reach its model."""

    def __init__(self, config: RolloutConfig, agents: AgentRegistry, task: Task) -> None:
        self._config = config
        self._agents = agents
        self._task = task
        self._parts: dict[Role, Part] = {}

    def part(self, role: Role) -> Part:
        """Return who plays a role; raise what keeps the agent from running on the task."""
        if role not in self._parts:
            agent = self._agents.get(role.agent)
            if (reason := agent.why_not(self._task)) is not None:
                raise CannotRunHere(reason)
            request = AgentRequest(role.model, role.reasoning_effort, {**self._config.agent_env, **role.env})
            self._parts[role] = Part(role, agent, request, self._access(agent, request))
        return self._parts[role]

    def _access(self, agent: Agent, request: AgentRequest) -> Access:
        try:
            return agent.access(self._task, request)
        except CredentialsError as error:
            if self._config.missing_credentials == "skip":
                raise CannotRunHere(f"{agent.name}: {error}") from None
            raise

    def call(self, roles: Iterable[Role]) -> None:
        """Cast all roles, so that whatever one of them lacks is known before anything starts."""
        for role in roles:
            self.part(role)

    @property
    def parts(self) -> list[Part]:
        """Every part, in the order of its casting."""
        return list(self._parts.values())

    @property
    def agents(self) -> list[Agent]:
        """Every agent of the rollout, once."""
        return list({part.agent.name: part.agent for part in self.parts}.values())

    @property
    def secrets(self) -> frozenset[str]:
        """Every value that must not be written down."""
        return frozenset().union(*(part.access.secrets for part in self.parts))

    @property
    def notes(self) -> list[str]:
        """What the user should know about how the agents reach their models."""
        return list(dict.fromkeys(note for part in self.parts for note in part.access.notes))

    async def provide(self, log_dir: Path) -> tuple[Mount, ...]:
        """Make on the host what the sandbox mounts for all agents."""
        mounts: dict[str, Mount] = {}
        try:
            for agent in self.agents:
                mounts |= {mount.target: mount for mount in await agent.provide(log_dir)}
        except BenchflowError as error:
            error.phase = error.phase or "install_agent"  # that is what users call it, wherever it happens
            raise
        return tuple(mounts.values())
