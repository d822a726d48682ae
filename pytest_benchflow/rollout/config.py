"""The configuration of one rollout: one agent, or a scene of several, on one task, once."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeGuard

from pytest_benchflow.core.errors import BadValue
from pytest_benchflow.rollout.scenes import Scene

if TYPE_CHECKING:
    from pytest_benchflow.rollout.users import BaseUser
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.services import ServiceConfig


KeepSandbox = Literal["never", "failed", "always"]
SkillMode = Literal["no-skill", "with-skill"]
_LONGEST_NAME = 64
MissingCredentials = Literal["error", "skip"]
PreAgentHook = Callable[["Sandbox"], Awaitable[None]]

IDLE_TIMEOUT_SEC = 600.0
USER_SETUP_TIMEOUT_SEC = 120.0


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """Everything that decides what a rollout does; `config.json` is written from it before anything starts."""

    task_path: Path
    agent: str = "oracle"
    model: str | None = None
    reasoning_effort: str | None = None
    prompts: Sequence[str | None] | str | None = None
    """One turn per entry; None stands for the task's own prompt."""
    scenes: Sequence[Scene] = ()
    """Roles and turns; without any, `agent` takes all `prompts`."""
    scene: str | None = None
    """Name of this configuration in ids and reports, where there are several."""
    sandbox: str = "auto"
    trial: int = 1
    threshold: float = 1.0
    timeout: float | None = None
    """Seconds for the agent; None leaves the task's own limit, which may be none at all."""
    agent_idle_timeout: float | None = IDLE_TIMEOUT_SEC
    """Seconds without a sign of life after which a prompt is stopped; None or 0 for no limit."""
    timeout_multiplier: float = 1.0
    agent_env: Mapping[str, str] = field(default_factory=dict)
    verifier_env: Mapping[str, str] = field(default_factory=dict)
    sandbox_user: str | None = "agent"
    """Who agents are inside; None for root."""
    sandbox_setup_timeout: float = USER_SETUP_TIMEOUT_SEC
    user: BaseUser | None = None
    """Speaks to the agent round by round, instead of prompts."""
    max_user_rounds: int = 5
    oracle_access: bool = False
    """Whether the user is told the task's solution."""
    loop_strategy: str | None = None
    """A ready user, for example `verify-retry:k=3`."""
    pre_agent_hooks: Sequence[PreAgentHook] = ()
    uploads: Mapping[str | Path, str] = field(default_factory=dict)
    """Host paths to put in the sandbox, by where they come from."""
    services: Sequence[str | ServiceConfig] = ()
    skills_dir: Path | None = None
    """Skills that every role is given; needs `skill_mode="with-skill"`."""
    skill_mode: SkillMode = "no-skill"
    skip_verify: bool = False
    missing_credentials: MissingCredentials = "error"
    """Whether an agent that cannot reach its model is an error or a reason to skip."""
    force_build: bool = False
    base_image_override: str | None = None
    """Image that the task's Dockerfile stands on instead of its own."""
    context_root: Path | None = None
    """Where files come from that the Dockerfile copies and its directory does not have."""
    keep_sandbox: KeepSandbox = "never"
    """When to leave the sandbox for inspection; an interrupted rollout leaves none."""
    jobs_dir: Path = Path("jobs")
    job_name: str | None = None
    rollout_name: str | None = None
    """Name of the result directory; None derives `<task>__<8 hex>`."""
    key: str = ""
    """Identifies the rollout within its job, for example the item's id; its result directory derives from it."""
    environment: InitVar[str | None] = None
    """What `sandbox` was called in older releases."""
    trial_name: InitVar[str | None] = None
    """What `rollout_name` was called in older releases."""

    def __post_init__(self, environment: str | None, trial_name: str | None) -> None:
        """Take older spellings, and refuse what contradicts itself."""
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
        if not _is_number(self.threshold):
            raise BadValue(f"threshold is {self.threshold!r}", advice="give a number")
        for name in ("timeout", "timeout_multiplier", "sandbox_setup_timeout"):
            value: object = getattr(self, name)
            if value is not None and not (_is_number(value) and value > 0):
                raise BadValue(f"{name} is {value!r}", advice="give a number above 0")

    def _check_user(self) -> None:
        if self.user is not None and self.loop_strategy is not None:
            raise BadValue("user and loop_strategy are both given", advice="choose one of them")
        if self.oracle_access and self.user is None:
            raise BadValue("oracle_access is given without a user", advice="pass user=, who alone is told the solution")
        if self.max_user_rounds < 1:
            raise BadValue(f"max_user_rounds is {self.max_user_rounds}", advice="give a number from 1 up")

    @property
    def effective_scenes(self) -> tuple[Scene, ...]:
        """The scenes, or the one that agent, model and prompts stand for."""
        if self.scenes:
            return tuple(self.scenes)
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
        return f"{_word(task_name)}__{hashlib.sha256(f'{key}#{attempt}'.encode()).hexdigest()[:8]}"

    def keeps_sandbox(self, *, passed: bool) -> bool:
        """Say whether a sandbox is to be left after a rollout that ended so."""
        return self.keep_sandbox == "always" or (self.keep_sandbox == "failed" and not passed)

    def public(self) -> dict[str, object]:
        """Return what may be written to disk: of the environments only the names."""
        return {
            "task_path": str(self.task_path),
            "agent": self.primary_agent,
            "model": self.primary_model,
            "reasoning_effort": self.reasoning_effort,
            "prompts": None if self.prompts is None else [*self.prompts],
            "scene": self.scene,
            "scenes": [_public_scene(scene) for scene in self.effective_scenes],
            "sandbox": self.sandbox,
            "sandbox_user": self.sandbox_user,
            "sandbox_setup_timeout": self.sandbox_setup_timeout,
            "trial": self.trial,
            "threshold": self.threshold,
            "timeout": self.timeout,
            "agent_idle_timeout": self.idle_limit,
            "timeout_multiplier": self.timeout_multiplier,
            "agent_env": sorted(self.agent_env),
            "verifier_env": sorted(self.verifier_env),
            "user": None if self.user is None else type(self.user).__name__,
            "max_user_rounds": self.max_user_rounds,
            "oracle_access": self.oracle_access,
            "loop_strategy": self.loop_strategy,
            "pre_agent_hooks": [getattr(hook, "__name__", type(hook).__name__) for hook in self.pre_agent_hooks],
            "services": [one if isinstance(one, str) else one.name for one in self.services],
            "skills_dir": None if self.skills_dir is None else str(self.skills_dir),
            "skill_mode": self.skill_mode,
            "skip_verify": self.skip_verify,
            "missing_credentials": self.missing_credentials,
            "uploads": sorted(self.uploads.values()),
            "force_build": self.force_build,
            "base_image_override": self.base_image_override,
            "context_root": None if self.context_root is None else str(self.context_root),
            "keep_sandbox": self.keep_sandbox,
            "key": self.key,
        }


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _word(name: str) -> str:
    """Return a name as a directory can have it that people and other tools meet: any task's own may hold anything."""
    return re.sub(r"[^\w.+-]+", "-", name).encode()[:_LONGEST_NAME].decode(errors="ignore")


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
