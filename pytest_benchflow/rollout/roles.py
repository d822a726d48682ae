"""The agents of a rollout: each role with its agent, what is asked of it, and how it reaches its model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents import Agent, AgentRegistry, AgentRequest, ModelAccess
from pytest_benchflow.core.errors import BenchflowError, CannotRunHere, CredentialsError

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.scenes import Role
    from pytest_benchflow.sandboxes import Mount
    from pytest_benchflow.tasks import Task


@dataclass(frozen=True, slots=True)
class RoleAgent:
    """A role, the agent that fills it, and how that agent reaches its model."""

    role: Role
    agent: Agent
    request: AgentRequest
    access: ModelAccess


class RoleAgents:
    """The agents of all roles; making one checks that it can run on the task and reach its model."""

    def __init__(self, config: RolloutConfig, agents: AgentRegistry, task: Task) -> None:
        self._config = config
        self._agents = agents
        self._task = task
        self._by_role: dict[Role, RoleAgent] = {}

    def get(self, role: Role) -> RoleAgent:
        """Return the agent of a role; raise what keeps it from running on the task."""
        if role not in self._by_role:
            agent = self._agents.get(role.agent)
            if (reason := agent.skip_reason(self._task)) is not None:
                raise CannotRunHere(reason)
            request = AgentRequest(role.model, role.reasoning_effort, {**self._config.agent_env, **role.env})
            self._by_role[role] = RoleAgent(role, agent, request, self._access(agent, request))
        return self._by_role[role]

    def _access(self, agent: Agent, request: AgentRequest) -> ModelAccess:
        try:
            return agent.access(self._task, request)
        except CredentialsError as error:
            if self._config.missing_credentials == "skip":
                raise CannotRunHere(f"{agent.name}: {error}") from None
            raise

    def require(self, roles: Iterable[Role]) -> None:
        """Make the agents of all roles, so that whatever one of them lacks is known before anything starts."""
        for role in roles:
            self.get(role)

    @property
    def all(self) -> list[RoleAgent]:
        """Every one that was asked for, in that order."""
        return list(self._by_role.values())

    @property
    def agents(self) -> list[Agent]:
        """Every agent of the rollout, once."""
        return list({role_agent.agent.name: role_agent.agent for role_agent in self.all}.values())

    @property
    def secrets(self) -> frozenset[str]:
        """Every value that must not be written down."""
        return frozenset().union(*(role_agent.access.secrets for role_agent in self.all))

    @property
    def notes(self) -> list[str]:
        """What the user should know about how the agents reach their models."""
        return list(dict.fromkeys(note for role_agent in self.all for note in role_agent.access.notes))

    async def prepare_on_host(self, log_dir: Path) -> tuple[Mount, ...]:
        """Make on the host what the sandbox mounts for all agents."""
        mounts: dict[str, Mount] = {}
        try:
            for agent in self.agents:
                mounts |= {mount.target: mount for mount in await agent.prepare_on_host(log_dir)}
        except BenchflowError as error:
            error.phase = error.phase or "install_agent"  # that is what users call it, wherever it happens
            raise
        return tuple(mounts.values())
