"""The agents of a rollout and the sessions with them: one at a time, opened for a role, prompt after prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents import (
    Agent,
    AgentContext,
    AgentOutcome,
    AgentRegistry,
    AgentRequest,
    ModelAccess,
    PromptResult,
    Session,
)
from pytest_benchflow.core.errors import BenchflowError, CannotRunHere, CredentialsError, SandboxError, UsageError
from pytest_benchflow.core.types import Event
from pytest_benchflow.rollout.config import prompt_limit
from pytest_benchflow.rollout.setup import SandboxUser, create_reader, create_user, existing_user, kill_processes
from pytest_benchflow.rollout.step_run import StepRun
from pytest_benchflow.verify import AgentUser

if TYPE_CHECKING:
    from pytest_benchflow.core.network import Endpoint
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.scenes import Role
    from pytest_benchflow.sandboxes import Mount
    from pytest_benchflow.tasks import Task


@dataclass(frozen=True, slots=True)
class Execution:
    """The results of one or more prompts; unpacks into the events and the number of tool calls."""

    results: tuple[PromptResult, ...]
    read_events: Callable[[], list[Event]] = list
    """Reads the events back from disk, where an agent may have left more of them than anybody should hold."""

    @property
    def trajectory(self) -> list[Event]:
        """The events of the prompts."""
        return self.read_events()

    @property
    def n_tool_calls(self) -> int:
        """Tool calls of all the prompts."""
        return sum(result.n_tool_calls for result in self.results)

    @property
    def outcome(self) -> AgentOutcome:
        """How the last prompt ended."""
        return self.results[-1].outcome

    @property
    def detail(self) -> str | None:
        """Details about how the last prompt ended."""
        return self.results[-1].detail

    @property
    def message(self) -> str | None:
        """The agent's last message."""
        return self.results[-1].message

    @property
    def can_continue(self) -> bool:
        """Whether the agent can take another prompt: it answered the last one, whatever its answer."""
        return can_continue(self.results[-1])

    def __iter__(self) -> Iterator[list[Event] | int]:
        return iter((self.trajectory, self.n_tool_calls))


@dataclass(frozen=True, slots=True)
class RoleAgent:
    """A role, the agent that fills it, and how that agent reaches its model."""

    role: Role
    agent: Agent
    request: AgentRequest
    access: ModelAccess


class RoleAgents:
    """The agents of all roles; each is made and its model access worked out once, when its role is first needed."""

    def __init__(self, config: RolloutConfig, agents: AgentRegistry, task: Task) -> None:
        self._config = config
        self._agents = agents
        self._task = task
        self._by_role: dict[Role, RoleAgent] = {}

    def get(self, role: Role) -> RoleAgent:
        """Return the agent of a role; raise if it cannot run on the task or reach its model."""
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
        """Make the agents of all roles, so that missing credentials are known before anything starts."""
        for role in roles:
            self.get(role)

    @property
    def all(self) -> list[RoleAgent]:
        """Every agent that was made, with its role, in that order."""
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
    def endpoints(self) -> list[Endpoint]:
        """The servers that the agents must reach."""
        return [endpoint for role_agent in self.all for endpoint in role_agent.access.endpoints]

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
            error.phase = error.phase or "install_agent"  # to users this is part of the installation
            raise
        return tuple(mounts.values())


class AgentSessions:
    """Opens sessions for roles in one sandbox and sends them prompts."""

    def __init__(self, work: StepRun, role_agents: RoleAgents, task: Task) -> None:
        self._work = work
        self._role_agents = role_agents
        self._task = task
        self._users: dict[bool, SandboxUser] = {}
        self._installed: dict[tuple[str, str], RoleAgent] = {}
        self._session: Session | None = None
        self._role_agent: RoleAgent | None = None
        self._user_name: str | int | None = None
        self._scene: str | None = None
        self._skill_places: tuple[tuple[str, ...], str | int | None] | None = None
        """Where skills are linked, and the user whose links they are."""
        self._turn = 0

    @property
    def is_open(self) -> bool:
        """Whether a session is open."""
        return self._session is not None

    def is_open_for(self, role: Role) -> bool:
        """Whether the open session is a role's."""
        return self._session is not None and self._role_agent is not None and self._role_agent.role == role

    @property
    def user(self) -> str | int | None:
        """The user that the connected agent runs as."""
        return self._user_name

    async def install(self) -> None:
        """Make the users and every agent ready in the sandbox."""
        for agent in self._role_agents.agents:
            role_agent = next(role_agent for role_agent in self._role_agents.all if role_agent.agent is agent)
            await self._install(role_agent)

    @property
    def agent_users(self) -> list[AgentUser]:
        """The users that agents run as; one that only runs the task's own solution is trusted."""
        trusted = [
            AgentUser(self._work.step.agent_user, "/root", is_trusted=True)
            for agent in self._role_agents.agents
            if agent.runs_as_task_user
        ]
        return [*(AgentUser(user.name, user.home) for user in self._users.values()), *trusted]

    async def connect(self, role: Role, scene: str | None = None, skills_dir: str | Path | None = None) -> Session:
        """Open a session for a role, in place of the one that is open."""
        await self.disconnect()
        role_agent = self._role_agents.get(role)
        self._work.recorder.redactor.add(role_agent.access.secrets)
        self._scene, self._role_agent = scene, role_agent
        context = await self._install(role_agent)
        self._user_name = context.user
        await self._give_skills(context, role_agent, skills_dir or role.skills_dir or self._work.config.skills_dir)
        await self._work.set_network(self._work.step.agent_network.with_endpoints(role_agent.access.endpoints))
        self._session = await role_agent.agent.connect(context)
        self._work.recorder.add_session(self._session)
        return self._session

    async def prompt(self, text: str) -> PromptResult:
        """Send one prompt on the open session."""
        assert self._session is not None
        assert self._role_agent is not None
        self._turn += 1
        self._work.recorder.add_prompt(text)
        limit = prompt_limit(self._role_agent.role, self._task, self._work.step, self._work.config)
        result = await self._session.prompt(text, timeout_sec=limit)
        self._work.recorder.prompt_results.append(result)
        return result

    async def disconnect(self) -> None:
        """End the session, if one is open."""
        if self._session is not None:
            session, self._session, self._role_agent = self._session, None, None
            await session.close()

    async def end(self) -> None:
        """End the session and every process that agents have left behind."""
        await self.disconnect()
        if not self._work.step.verifier.hardening.does("kill_processes") or await self._work.end_programs():
            return
        for user in self._users.values():
            if user.is_ours:
                await kill_processes(self._work.sandbox, str(user.name))

    async def hand_over(self) -> None:
        """Make the agents' user the owner of what has been added to the workspace since it was made."""
        user = self._users.get(False)
        if user is not None and user.is_ours:
            await create_user(self._work.sandbox, str(user.name), self._work.config.sandbox_setup_timeout)

    async def _install(self, role_agent: RoleAgent) -> AgentContext:
        user = await self._user(role_agent)
        context = self._context(role_agent, user)
        key = (role_agent.agent.name, user.home)
        if self._installed.get(key) is not role_agent:
            await role_agent.agent.install(context)
            self._installed[key] = role_agent
        return context

    async def _give_skills(self, context: AgentContext, role_agent: RoleAgent, source: str | Path | None) -> None:
        """Link the role's skills where its agent looks for them, and remove those of the role before."""
        if self._skill_places is None and source is None:
            return
        from pytest_benchflow.skills import deploy_skills, withdraw_skills

        if self._skill_places is not None:
            places, user = self._skill_places
            await withdraw_skills(context.sandbox, places, user=user)
            self._skill_places = None
        if source is None:
            return
        at = {"$HOME": context.home, "$WORKSPACE": context.cwd}
        places = tuple(_expand(place, at) for place in getattr(role_agent.agent, "skill_dirs", ()))
        if not places:
            raise UsageError(
                f"{role_agent.agent.name} does not support skills", advice="leave skills_dir out for this role"
            )
        self._skill_places = places, context.user
        await deploy_skills(context.sandbox, Path(source), name=role_agent.role.name, places=places, user=context.user)

    def _context(self, role_agent: RoleAgent, user: SandboxUser) -> AgentContext:
        work, config = self._work, self._work.config
        step_name, scene, role_name = work.step.name, self._scene, role_agent.role.name

        def emit(event: Event) -> None:
            work.recorder.emit(event, step=step_name, scene=scene, role=role_name, turn=self._turn)

        idle = role_agent.role.idle_timeout_sec if role_agent.role.idle_timeout_sec is not None else config.idle_limit
        return AgentContext(
            sandbox=work.sandbox,
            task=self._task,
            step=work.step,
            request=role_agent.request,
            access=role_agent.access,
            user=user.name,
            home=user.home,
            cwd=work.sandbox.workdir,
            log_dir=work.output / "agent",
            emit=emit,
            mcp_servers=self._task.config.environment.mcp_servers,
            idle_timeout_sec=None if idle is None else idle * config.timeout_multiplier,
        )

    async def _user(self, role_agent: RoleAgent) -> SandboxUser:
        """Return the user of a role in the sandbox, made when the first role needs it."""
        config, sandbox, named = self._work.config, self._work.sandbox, self._work.step.agent_user
        limit = config.sandbox_setup_timeout
        reads = role_agent.role.is_read_only
        if role_agent.agent.runs_as_task_user:
            return SandboxUser(named, "/root")
        if reads:
            if not sandbox.capabilities.users:
                raise SandboxError(
                    f"role {role_agent.role.name!r} is read-only, and this sandbox has no users to enforce it",
                    advice="run as root or use --bf-sandbox docker",
                    retryable=False,
                )
            self._users[True] = await create_reader(sandbox, limit)
        elif False not in self._users:
            makes = named is None and config.sandbox_user is not None and sandbox.capabilities.users
            self._users[False] = (
                await create_user(sandbox, str(config.sandbox_user), limit)
                if makes
                else await existing_user(sandbox, named, limit)
            )
        return self._users[reads]


def _expand(place: str, at: dict[str, str]) -> str:
    for name, path in at.items():
        place = place.replace(name, path)
    return place


def can_continue(result: PromptResult) -> bool:
    """Return whether the agent can take another prompt: it answered this one, whatever its answer."""
    return result.outcome is AgentOutcome.COMPLETED or (
        result.outcome in (AgentOutcome.GAVE_UP, AgentOutcome.NONZERO_EXIT) and result.stop_reason is not None
    )
