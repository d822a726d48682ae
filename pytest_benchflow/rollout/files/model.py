"""What a rollout or job file says, whichever dialect it was written in; None means that it says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.core.errors import BadValue
from pytest_benchflow.rollout.scenes import Capabilities, Role, Scene, Turn
from pytest_benchflow.rollout.users import BaseUser, load_user

if TYPE_CHECKING:
    from pytest_benchflow.configfile import Problem
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.tasks import SourceSpec


#: As `sandbox_user`, root.
NO_USER = "none"


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """An agent that a file names."""

    name: str
    model: str | None = None
    reasoning_effort: str | None = None


@dataclass(frozen=True, slots=True)
class RoleEntry:
    """A role that may leave its agent to the run."""

    name: str
    agent: str | None = None
    model: str | None = None
    reasoning_effort: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_sec: float | None = None
    idle_timeout_sec: float | None = None
    skills_dir: Path | None = None
    capabilities: Capabilities | None = None

    def role(self, default: AgentEntry) -> Role:
        """Return the role; the run's model is only for the run's agent, never for another one."""
        own = default if self.agent in (None, default.name) else AgentEntry(self.agent or "")
        return Role(
            self.name,
            own.name,
            self.model or own.model,
            self.reasoning_effort or own.reasoning_effort,
            self.env,
            self.timeout_sec,
            self.idle_timeout_sec,
            self.skills_dir,
            self.capabilities,
        )


@dataclass(frozen=True, slots=True)
class SceneEntry:
    """A scene whose roles may leave their agents to the run."""

    name: str
    roles: tuple[RoleEntry, ...]
    turns: tuple[Turn, ...] = ()
    skills_dir: Path | None = None
    outbox: bool = False

    def scene(self, default: AgentEntry) -> Scene:
        """Return the scene with the agent of the run where a role names none."""
        roles = [role.role(default) for role in self.roles]
        return Scene(self.name, roles, self.turns, self.skills_dir, self.outbox)


@dataclass(frozen=True, slots=True)
class UserEntry:
    """The user that a file names."""

    object: str
    base: Path
    max_rounds: int | None = None
    oracle_access: bool = False

    def load(self) -> BaseUser:
        """Return a new user; no two rollouts share one."""
        return load_user(self.object, self.base)


@dataclass(frozen=True, kw_only=True)
class RolloutFile:
    """One value of the scene axis, or a whole job."""

    path: Path | None
    name: str
    agents: tuple[AgentEntry, ...] = ()
    prompts: tuple[str | None, ...] | None = None
    scenes: tuple[SceneEntry, ...] = ()
    sandbox: str | None = None
    sandbox_user: str | None = None
    """`none` for root."""
    sandbox_setup_timeout: float | None = None
    threshold: float | None = None
    trials: int | None = None
    timeout: float | None = None
    timeout_multiplier: float | None = None
    idle_timeout: float | None = None
    """0 for no limit."""
    agent_env: Mapping[str, str] = field(default_factory=dict)
    skills_dir: Path | None = None
    skill_mode: str | None = None
    services: tuple[str, ...] | None = None
    user: UserEntry | None = None
    loop_strategy: str | None = None
    retry: Mapping[str, object] | None = None
    source: SourceSpec | None = None
    tasks: tuple[Path, ...] = ()
    task_path: Path | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    concurrency: int | None = None
    jobs_dir: Path | None = None
    job_name: str | None = None
    rollout_name: str | None = None
    force_build: bool | None = None
    context_root: Path | None = None
    base_image_override: str | None = None
    usage_tracking: str | None = None
    warnings: tuple[Problem, ...] = ()

    @property
    def agent(self) -> str | None:
        """The first agent that the file names for the whole of it."""
        return self.agents[0].name if self.agents else None

    @property
    def pins_agents(self) -> bool:
        """Whether it is settled who plays: no agent of the run is asked for."""
        return bool(self.agents) or (bool(self.scenes) and all(role.agent for s in self.scenes for role in s.roles))

    def scenes_for(
        self, agent: str | None = None, model: str | None = None, reasoning_effort: str | None = None
    ) -> tuple[Scene, ...]:
        """Return the scenes as an agent of the run plays them; none if it is all there is, with the file's prompts.

        `oracle` and `nop` stand in for a cast that is not settled, so that checking a task never pays for an agent.
        """
        default = self.agents[0] if self.agents else AgentEntry(agent or "", model, reasoning_effort)
        if not self.scenes or (default.name in FREE_AGENTS and not self.pins_agents):
            return ()
        return tuple(scene.scene(default) for scene in self.scenes)

    def config(self, task_path: Path | str | None = None) -> RolloutConfig:
        """Return the configuration of one rollout: on the file's task, or the one given."""
        from pytest_benchflow.rollout.rollout import make_config

        return make_config({**self.said(), **self._played(), "task_path": self._task(task_path)})

    def said(self) -> dict[str, Any]:
        """Return what the file settles of a rollout's configuration, apart from task, agents and prompts."""
        user = self.user
        fields: dict[str, Any] = {
            "sandbox": self.sandbox,
            "sandbox_setup_timeout": self.sandbox_setup_timeout,
            "threshold": self.threshold,
            "timeout": self.timeout,
            "timeout_multiplier": self.timeout_multiplier,
            "agent_idle_timeout": self.idle_timeout,
            "agent_env": self.agent_env or None,
            "skills_dir": self.skills_dir,
            "skill_mode": self.skill_mode,
            "services": self.services,
            "user": None if user is None else user.load(),
            "max_user_rounds": None if user is None else user.max_rounds,
            "oracle_access": None if user is None else user.oracle_access,
            "loop_strategy": self.loop_strategy,
            "jobs_dir": self.jobs_dir,
            "job_name": self.job_name,
            "rollout_name": self.rollout_name,
            "force_build": self.force_build,
            "context_root": self.context_root,
            "base_image_override": self.base_image_override,
        }
        said = {key: value for key, value in fields.items() if value is not None}
        if self.sandbox_user is not None:
            said["sandbox_user"] = None if self.sandbox_user == NO_USER else self.sandbox_user
        return said

    def wants(self, *names: str) -> bool:
        """Tell whether a task, by any of its names, is among those that a job is to run."""

        def listed(patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)

        return (not self.include or listed(self.include)) and not listed(self.exclude)

    def _played(self) -> dict[str, Any]:
        if not self.pins_agents:
            raise BadValue(f"{self.path or self.name} names no agent", advice="add agent: or scenes: whose roles do")
        if self.scenes:
            return {"scenes": self.scenes_for(), "scene": self.name}
        first = self.agents[0]
        played = {"agent": first.name, "model": first.model, "reasoning_effort": first.reasoning_effort}
        return {**played, "prompts": self.prompts, "scene": self.name}

    def _task(self, given: Path | str | None) -> Path:
        if given is not None:
            return Path(given)
        if self.task_path is not None:
            return self.task_path
        return Path() if self.path is None else self.path.parent
