"""The talk with the agents of a rollout: one session at a time, opened for a role, prompt after prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents import AgentContext, AgentOutcome, PromptResult, Session
from pytest_benchflow.core.errors import SandboxError, UsageError
from pytest_benchflow.core.types import Event
from pytest_benchflow.rollout.limits import prompt_limit
from pytest_benchflow.rollout.sandbox_user import (
    SandboxUser,
    create_reader,
    create_user,
    existing_user,
    kill_processes,
)
from pytest_benchflow.rollout.stage import StageRun
from pytest_benchflow.skills import deploy_skills, withdraw_skills

if TYPE_CHECKING:
    from pytest_benchflow.rollout.roles import Cast, Part
    from pytest_benchflow.rollout.scenes import Role
    from pytest_benchflow.tasks import Task


@dataclass(frozen=True, slots=True)
class Executed:
    """What came of one or more prompts; unpacks into the events and the number of tool calls."""

    results: tuple[PromptResult, ...]
    trajectory: list[Event]

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
        """What there is to say about the end of the last prompt."""
        return self.results[-1].detail

    @property
    def message(self) -> str | None:
        """The last thing the agent said."""
        return self.results[-1].message

    def __iter__(self) -> Iterator[list[Event] | int]:
        return iter((self.trajectory, self.n_tool_calls))


class Dialogue:
    """Opens sessions for roles in one sandbox and sends them prompts."""

    def __init__(self, work: StageRun, cast: Cast, task: Task) -> None:
        self._work = work
        self._cast = cast
        self._task = task
        self._users: dict[bool, SandboxUser] = {}
        self._installed: dict[tuple[str, str], Part] = {}
        self._session: Session | None = None
        self._part: Part | None = None
        self._user_name: str | int | None = None
        self._scene: str | None = None
        self._skill_places: tuple[str, ...] = ()
        self._turn = 0

    @property
    def is_open(self) -> bool:
        """Whether a session is open."""
        return self._session is not None

    def is_open_for(self, role: Role) -> bool:
        """Whether the open session is a role's."""
        return self._session is not None and self._part is not None and self._part.role == role

    @property
    def user(self) -> str | int | None:
        """Who the connected agent is in the sandbox."""
        return self._user_name

    async def install(self) -> None:
        """Make the users and every agent ready in the sandbox."""
        for agent in self._cast.agents:
            part = next(part for part in self._cast.parts if part.agent is agent)
            await self._install(part)

    async def connect(self, role: Role, scene: str | None = None, skills_dir: str | Path | None = None) -> Session:
        """Open a session for a role, in place of the one that is open."""
        await self.disconnect()
        part = self._cast.part(role)
        self._work.record.redactor.add(part.access.secrets)
        self._scene, self._part = scene, part
        context = await self._install(part)
        self._user_name = context.user
        await self._give_skills(context, part, skills_dir or role.skills_dir or self._work.config.skills_dir)
        self._session = await part.agent.connect(context)
        self._work.record.connected(self._session)
        return self._session

    async def prompt(self, text: str) -> PromptResult:
        """Send one prompt on the open session."""
        assert self._session is not None
        assert self._part is not None
        self._turn += 1
        self._work.record.prompting(text)
        limit = prompt_limit(self._part.role, self._task, self._work.stage, self._work.config)
        done = await self._session.prompt(text, timeout_sec=limit)
        self._work.record.prompted(done)
        return done

    async def disconnect(self) -> None:
        """End the session, if one is open."""
        if self._session is not None:
            session, self._session, self._part = self._session, None, None
            await session.close()

    async def end(self) -> None:
        """End the session and every process that agents have left behind."""
        await self.disconnect()
        for user in self._users.values():
            if user.is_ours:
                await kill_processes(self._work.sandbox, str(user.name))

    async def hand_over(self) -> None:
        """Give the agents' user what has come to the workspace since it was made."""
        user = self._users.get(False)
        if user is not None and user.is_ours:
            await create_user(self._work.sandbox, str(user.name), self._work.config.sandbox_setup_timeout)

    async def _install(self, part: Part) -> AgentContext:
        user = await self._user(part)
        context = self._context(part, user)
        key = (part.agent.name, user.home)
        if self._installed.get(key) is not part:
            await part.agent.install(context)
            self._installed[key] = part
        return context

    async def _give_skills(self, context: AgentContext, part: Part, source: str | Path | None) -> None:
        """Link the role's skills where its agent looks, and nobody else's."""
        if self._skill_places:
            await withdraw_skills(context.sandbox, self._skill_places)
            self._skill_places = ()
        if source is None:
            return
        at = {"$HOME": context.home, "$WORKSPACE": context.cwd}
        places = tuple(_placed(place, at) for place in getattr(part.agent, "skill_dirs", ()))
        if not places:
            raise UsageError(f"{part.agent.name} knows no skills", advice="leave skills_dir out for this role")
        self._skill_places = places
        owner = str(context.user) if context.user is not None else "0"
        await deploy_skills(context.sandbox, Path(source), name=part.role.name, places=places, owner=owner)

    def _context(self, part: Part, user: SandboxUser) -> AgentContext:
        work, config = self._work, self._work.config
        step, scene, role = work.stage.name, self._scene, part.role.name

        def emit(event: Event) -> None:
            work.record.emit(event, step=step, scene=scene, role=role, turn=self._turn)

        idle = part.role.idle_timeout_sec if part.role.idle_timeout_sec is not None else config.idle_limit
        return AgentContext(
            sandbox=work.sandbox,
            task=self._task,
            stage=work.stage,
            request=part.request,
            access=part.access,
            user=user.name,
            home=user.home,
            cwd=work.sandbox.workdir,
            log_dir=work.output / "agent",
            emit=emit,
            mcp_servers=self._task.config.environment.mcp_servers,
            idle_timeout_sec=None if idle is None else idle * config.timeout_multiplier,
        )

    async def _user(self, part: Part) -> SandboxUser:
        """Return who a role is in the sandbox; made when the first one needs it."""
        config, sandbox, named = self._work.config, self._work.sandbox, self._work.stage.agent_user
        limit = config.sandbox_setup_timeout
        reads = part.role.is_read_only
        if part.agent.is_trusted:
            return SandboxUser(named, "/root")
        if reads:
            if not sandbox.capabilities.users:
                raise SandboxError(
                    f"role {part.role.name!r} is read-only, and this sandbox has no users to enforce it",
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


def _placed(place: str, at: dict[str, str]) -> str:
    for name, path in at.items():
        place = place.replace(name, path)
    return place


def may_go_on(result: PromptResult) -> bool:
    """Tell whether the agent is still there for another prompt: it answered, whatever it said."""
    return result.outcome is AgentOutcome.COMPLETED or (
        result.outcome in (AgentOutcome.GAVE_UP, AgentOutcome.NONZERO_EXIT) and result.stop_reason is not None
    )
