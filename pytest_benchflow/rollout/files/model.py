"""What a rollout or job file says, whichever dialect it was written in; None means that it says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.core.errors import BadValue
from pytest_benchflow.core.settings import Layer, LayerName, settings_of
from pytest_benchflow.rollout.config import RolloutConfig
from pytest_benchflow.rollout.scenes import Capabilities, Role, Scene, Turn
from pytest_benchflow.rollout.settings import RunSettings
from pytest_benchflow.rollout.users import BaseUser, load_user

if TYPE_CHECKING:
    from pytest_benchflow.configfile import Problem
    from pytest_benchflow.tasks import SourceSpec


_ROLLOUT_NAMES = frozenset(field.name for field in fields(RolloutConfig))
_SETTINGS = _ROLLOUT_NAMES | {*settings_of(RunSettings)}


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
    outbox: bool | Literal["auto"] = "auto"

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

    def fields(self) -> dict[str, Any]:
        """Return what it says of a rollout's configuration, with a new user."""
        fields = {"user": self.load(), "max_user_rounds": self.max_rounds, "oracle_access": self.oracle_access}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class RolloutFile:
    """One value of the scene axis, or a whole job."""

    path: Path | None
    name: str
    agents: tuple[AgentEntry, ...] = ()
    scenes: tuple[SceneEntry, ...] = ()
    user: UserEntry | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    """What it says of declared settings, by their names; each is an attribute too, None if the file does not say."""
    retry: Mapping[str, object] | None = None
    source: SourceSpec | None = None
    tasks: tuple[Path, ...] = ()
    task_path: Path | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rollout_name: str | None = None
    usage_tracking: str | None = None
    warnings: tuple[Problem, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name in _SETTINGS:
            return self.values.get(name)
        raise AttributeError(f"a rollout file has no {name!r}")

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
        user = {} if self.user is None else self.user.fields()
        values = {name: value for name, value in self.values.items() if name in _ROLLOUT_NAMES}
        named = {} if self.rollout_name is None else {"rollout_name": self.rollout_name}
        return RolloutConfig(**{**values, **named, **user, **self._players(), "task_path": self._task(task_path)})

    def layer(self, name: LayerName) -> Layer:
        """Return what the file says of the settings of a run and of its rollouts."""
        retries = (self.retry or {}).get("max_retries")
        return Layer(name, self.values if retries is None else {**self.values, "retries": retries})

    def wants(self, *names: str) -> bool:
        """Return whether a job runs a task that has these names."""

        def listed(patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)

        return (not self.include or listed(self.include)) and not listed(self.exclude)

    def _players(self) -> dict[str, Any]:
        if not self.pins_agents:
            raise BadValue(
                f"{self.path or self.name} does not name an agent", advice="add agent: or scenes: whose roles do"
            )
        if self.scenes:
            return {"scenes": self.scenes_for(), "scene": self.name, "prompts": None}
        first = self.agents[0]
        return {"agent": first.name, "model": first.model, "scene": self.name}

    def _task(self, path: Path | str | None) -> Path:
        if path is not None:
            return Path(path)
        if self.task_path is not None:
            return self.task_path
        return Path() if self.path is None else self.path.parent
