"""The configuration of one rollout: its settings, its task, where its results go; and the time limits it means."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, dataclass_transform

from pytest_benchflow.core.errors import BadValue
from pytest_benchflow.core.settings import Limit, Number, complete, settings_of
from pytest_benchflow.rollout.settings import PreAgentHook, RolloutSettings, RunSettings

if TYPE_CHECKING:
    from pytest_benchflow.rollout.scenes import Role, Scene
    from pytest_benchflow.rollout.settings import NO_PATH, OptionalPathField, PathField
    from pytest_benchflow.tasks import EnvironmentConfig, Task, TaskStep

C = TypeVar("C")

_LONGEST_TASK_NAME = 64
UNLIMITED_AGENT_SEC = 24 * 3600.0
_MARGIN_SEC = 1800.0

complete(RolloutSettings)
complete(RunSettings)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def configuration(cls: type[C]) -> type[C]:
    """Make a frozen dataclass; type checkers of plain ones ignore what a required `PathField` takes."""
    return dataclass(frozen=True, kw_only=True)(cls)


@configuration
class RolloutConfig(RolloutSettings):
    """Everything that decides what one rollout does; `config.json` is written from it before anything starts.

    Make one with keywords, change one with `dataclasses.replace`; an invalid value is a ValueError.
    """

    task_path: PathField
    agent: str = "oracle"
    model: str | None = None
    scene: str | None = None
    """Name of this configuration in ids and reports, where there are several."""
    trial: int = 1
    pre_agent_hooks: Sequence[PreAgentHook] = ()
    uploads: Mapping[str | Path, str] = field(default_factory=dict)
    """Host paths to put in the sandbox, by where they come from."""
    skip_verify: bool = False
    jobs_dir: PathField = cast("PathField", Path("jobs"))
    job_name: str | None = None
    rollout_name: str | None = None
    """Name of the result directory; None derives `<task>__<8 hex>`."""
    key: str = ""
    """Identifies the rollout within its job, for example the item's id; its result directory derives from it."""
    if TYPE_CHECKING:  # mypy forgets the type to read of inherited fields
        skills_dir: OptionalPathField = NO_PATH
        context_root: OptionalPathField = NO_PATH
    environment: InitVar[str | None] = None
    """What `sandbox` was called in older releases."""
    trial_name: InitVar[str | None] = None
    """What `rollout_name` was called in older releases."""

    def __post_init__(self, environment: str | None, trial_name: str | None) -> None:
        """Convert paths and older field names, and refuse fields that contradict each other."""
        for name in ("task_path", "jobs_dir", "context_root", "skills_dir"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else Path(value))
        if environment is not None:
            object.__setattr__(self, "sandbox", environment)
        if trial_name is not None:
            object.__setattr__(self, "rollout_name", trial_name)
        if isinstance(self.prompts, str):
            object.__setattr__(self, "prompts", (self.prompts,))
        if self.prompts is not None and self.scenes:
            raise BadValue("prompts and scenes are both given", advice="put the prompts into the turns of a scene")
        if self.skills_dir is not None and self.skill_mode == "no-skill":
            raise BadValue("skills_dir is given and skill_mode is no-skill", advice='pass skill_mode="with-skill"')
        self._check_numbers()
        self._check_user()

    def _check_numbers(self) -> None:
        for name, declared in settings_of(RolloutSettings).items():
            value, kind = getattr(self, name), declared.kind
            if not isinstance(kind, Number) or isinstance(kind, Limit) or (value is None and declared.default is None):
                continue
            if isinstance(value, str) or not kind.accepts(value):
                raise BadValue(f"{name} is {value!r}", advice=kind.expected)

    def _check_user(self) -> None:
        if self.user is not None and self.loop_strategy is not None:
            raise BadValue("user and loop_strategy are both given", advice="choose one of them")
        if self.oracle_access and self.user is None:
            raise BadValue(
                "oracle_access is given without a user", advice="pass user=, the only one who sees the solution"
            )
        if self.max_user_rounds < 1:
            raise BadValue(f"max_user_rounds is {self.max_user_rounds}", advice="give a number from 1 up")

    @property
    def effective_scenes(self) -> tuple[Scene, ...]:
        """The scenes, or else one with the agent, the model and the prompts."""
        if self.scenes:
            return tuple(self.scenes)
        from pytest_benchflow.rollout.scenes import Scene

        prompts = None if self.prompts is None else [*self.prompts]
        return (
            Scene.single(agent=self.agent, model=self.model, reasoning_effort=self.reasoning_effort, prompts=prompts),
        )

    @property
    def primary_agent(self) -> str:
        """The agent of the first role."""
        return self.effective_scenes[0].roles[0].agent

    @property
    def primary_model(self) -> str | None:
        """The model of the first role."""
        return self.effective_scenes[0].roles[0].model

    @property
    def idle_limit(self) -> float | None:
        """Seconds without a sign of life, None for no limit."""
        return self.agent_idle_timeout or None

    def name_for(self, task_name: str, attempt: int = 1) -> str:
        """Return the rollout's name: stable for the same key and attempt, distinct within a job."""
        if self.rollout_name:
            return self.rollout_name if attempt == 1 else f"{self.rollout_name}-{attempt}"
        key = self.key or f"{self.task_path}|{self.agent}|{self.model}|{self.scene}|{self.trial}"
        return f"{_directory_name(task_name)}__{hashlib.sha256(f'{key}#{attempt}'.encode()).hexdigest()[:8]}"

    def keeps_sandbox(self, *, passed: bool) -> bool:
        """Return whether the sandbox of a rollout with this outcome is left for inspection."""
        return self.keep_sandbox == "always" or (self.keep_sandbox == "failed" and not passed)

    def decisive(self) -> dict[str, object]:
        """Return, of `config.json`, what decides how the rollout may end, as it reads there."""
        public = self.public()
        names = [name for name, declared in settings_of(RolloutSettings).items() if declared.decides]
        decisive: dict[str, object] = json.loads(json.dumps({name: public[name] for name in (*names, *_DECISIVE)}))
        return decisive

    def public(self) -> dict[str, object]:
        """Return the content of `config.json`; of environment variables it has only the names."""
        settings = settings_of(RolloutSettings)
        return {
            "task_path": str(self.task_path),
            "agent": self.primary_agent,
            "model": self.primary_model,
            **{name: declared.kind.public(getattr(self, name)) for name, declared in settings.items()},
            "scene": self.scene,
            "scenes": [_public_scene(scene) for scene in self.effective_scenes],
            "trial": self.trial,
            "agent_idle_timeout": self.idle_limit,
            "user": None if self.user is None else type(self.user).__name__,
            "max_user_rounds": self.max_user_rounds,
            "oracle_access": self.oracle_access,
            "pre_agent_hooks": [getattr(hook, "__name__", type(hook).__name__) for hook in self.pre_agent_hooks],
            "services": [one if isinstance(one, str) else one.name for one in self.services],
            "skip_verify": self.skip_verify,
            "uploads": sorted(self.uploads.values()),
            "key": self.key,
        }


#: What else than settings decides how a rollout may end.
_DECISIVE = ("scenes", "max_user_rounds", "oracle_access", "pre_agent_hooks", "skip_verify", "uploads")


def make_config(given: Mapping[str, Any]) -> RolloutConfig:
    """Return the configuration with these fields; None means the default, for `sandbox_user` it means root."""
    values = {key: value for key, value in given.items() if value is not None or key == "sandbox_user"}
    if "skills_dir" in values:
        values.setdefault("skill_mode", "with-skill")
    return RolloutConfig(**values)


def shared_settings(settings: object) -> dict[str, Any]:
    """Return what another dataclass says of a rollout under the names of a rollout's own configuration."""
    names = {each.name for each in fields(RolloutConfig)}
    return {each.name: getattr(settings, each.name) for each in fields(cast("Any", settings)) if each.name in names}


def _directory_name(name: str) -> str:
    """Return a task name with only characters that are safe in directory names, and not too long."""
    return re.sub(r"[^\w.+-]+", "-", name).encode()[:_LONGEST_TASK_NAME].decode(errors="ignore")


def _public_scene(scene: Scene) -> dict[str, object]:
    roles = [
        {
            "name": role.name,
            "agent": role.agent,
            "model": role.model,
            "reasoning_effort": role.reasoning_effort,
            "env": sorted(role.env),
            "timeout_sec": role.timeout_sec,
            "idle_timeout_sec": role.idle_timeout_sec,
        }
        for role in scene.roles
    ]
    turns = [{"role": turn.role, "prompt": turn.prompt} for turn in scene.turns]
    return {"name": scene.name, "roles": roles, "turns": turns, "outbox": scene.outbox}


def agent_limit(step: TaskStep, config: RolloutConfig) -> float | None:
    """Return the seconds the agent has in a step, None for no limit."""
    limit = step.agent_timeout_sec if config.timeout is None else config.timeout
    return None if limit is None else limit * config.timeout_multiplier


def prompt_limit(role: Role, task: Task, step: TaskStep, config: RolloutConfig) -> float | None:
    """Return the seconds one prompt to a role may take: its own, the solution's for the oracle, else the agent's."""
    own = role.timeout_sec
    if own is None and config.timeout is None and role.agent == "oracle":
        own = task.config.solution.timeout_sec
    return agent_limit(step, config) if own is None else own * config.timeout_multiplier


def verifier_limit(step: TaskStep, config: RolloutConfig) -> float:
    """Return the seconds the verifier has."""
    return step.verifier.timeout_sec * config.timeout_multiplier


def hard_deadline(task: Task, config: RolloutConfig, scenes: Sequence[Scene], rounds: int | None) -> float:
    """Return the seconds after which a rollout is stopped as a whole; `rounds` is how many a user may have, if any."""
    total = _start_limit(task.config.environment, config) + config.sandbox_setup_timeout + _MARGIN_SEC
    roles = [scene.role(turn.role) for scene in scenes for turn in scene.effective_turns]
    for step in task.steps:
        verify = verifier_limit(step, config)
        prompts = [prompt_limit(role, task, step, config) or UNLIMITED_AGENT_SEC for role in roles]
        total += verify + (sum(prompts) if rounds is None else rounds * (max(prompts) + verify))
        total += sum(hook.timeout_sec for hook in step.verifier.collect)
        if step.verifier.mode == "separate":
            total += _start_limit(step.verifier.environment or task.config.environment, config)
    return total


def _start_limit(environment: EnvironmentConfig, config: RolloutConfig) -> float:
    setup = sum(command.timeout_sec for command in environment.setup_commands)
    return environment.build_timeout_sec * config.timeout_multiplier + setup
