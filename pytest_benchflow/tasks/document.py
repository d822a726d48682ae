"""Front matter of `task.md`: the `task.toml` model plus roles, scenes and the simulated user."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pytest_benchflow.configfile import Env, NonEmpty, Seconds, Table, directory_name, quoted, rule_error
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.tasks.models import TaskConfig, package_name

Profile = Literal[
    "code-change", "harbor-compatible", "reward-kit", "acceptance-live", "multi-agent", "leaderboard-local"
]


class RoleConfig(Table):
    """One agent of the document, under its name."""

    agent: NonEmpty | None = None
    model: NonEmpty | None = None
    reasoning_effort: NonEmpty | None = None
    env: Env = Field(default_factory=dict)
    timeout_sec: Seconds | None = None
    idle_timeout_sec: Seconds | None = None
    skills_dir: str | None = None
    capabilities: tuple[str, ...] = ()


class AgentsConfig(Table):
    """`agents:`, the roles that scenes may use."""

    roles: dict[str, RoleConfig] = Field(default_factory=dict)


class TurnConfig(Table):
    """One prompt to one role; no prompt means the scene's, the role's or the task's own."""

    role: NonEmpty
    prompt: str | None = None


def _turn(value: object) -> object:
    return {"role": value} if isinstance(value, str) else value


class SceneConfig(Table):
    """Turns taken in order by the scene's roles."""

    name: NonEmpty = "default"
    roles: tuple[str, ...] = ()
    turns: tuple[Annotated[TurnConfig, BeforeValidator(_turn)], ...] = ()
    skills_dir: str | None = None


class UserConfig(Table):
    """`user:`, a simulated user."""

    model: NonEmpty | None = None
    stop_rule: NonEmpty | None = None
    private_facts: tuple[object, ...] | dict[str, object] | str | None = None


def _profile(value: object) -> object:
    known = Profile.__args__  # type: ignore[attr-defined]
    if value not in known:
        raise rule_error(f"is {quoted(value)}", did_you_mean(str(value), known))
    return value


def _name(value: str) -> str:
    return package_name(value) if "/" in value else directory_name(value)


class DocumentConfig(TaskConfig):
    """The whole front matter of `task.md`."""

    name: Annotated[str, AfterValidator(_name)] | None = None
    agents: AgentsConfig = Field(default_factory=AgentsConfig)
    scenes: tuple[SceneConfig, ...] = ()
    user: UserConfig | None = None
    profile: Annotated[Profile, BeforeValidator(_profile)] | None = None

    def as_document(self) -> DocumentConfig:
        """Return it as what it is."""
        return self

    @model_validator(mode="after")
    def _roles_exist(self) -> Self:
        known = self.agents.roles
        for scene in self.scenes:
            for role in (*scene.roles, *(turn.role for turn in scene.turns)):
                if known and role not in known:
                    reason = f"has the unknown role {quoted(role)} in scene {quoted(scene.name)}"
                    raise rule_error(reason, did_you_mean(role, known), "scenes")
                if scene.roles and role not in scene.roles:
                    reason = f"has a turn of {quoted(role)} in scene {quoted(scene.name)}, which does not list it"
                    raise rule_error(reason, "add it to the roles of the scene", "scenes")
        return self
