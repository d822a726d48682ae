"""Agents and environments as objects, and `run` in its three forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, overload

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.api.environment import Environment
from pytest_benchflow.core.errors import BadType, BadValue
from pytest_benchflow.rollout import RolloutConfig, RolloutResult, make_config, run_rollout, shared_settings

if TYPE_CHECKING:
    from pytest_benchflow.agents import Agent as RegisteredAgent
    from pytest_benchflow.core.types import Event
    from pytest_benchflow.rollout import PreAgentHook


@dataclass(frozen=True)
class RuntimeAgent:
    """An agent by the word users choose it by, with its model and variables."""

    name: str
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def config(self) -> RegisteredAgent:
        """Its entry in the registry; an unknown name is told with the nearest known."""
        return _registry().get(self.name)

    @property
    def launch_cmd(self) -> str:
        """The command that speaks ACP; one made of Python alone has none, which is an error."""
        return _registry().manifest(self.name).launch_cmd


def _registry() -> AgentRegistry:
    registry = AgentRegistry()
    registry.load_entry_points()
    return registry


Agent = RuntimeAgent  # as users know it; inside the package an Agent is an entry of the registry


@dataclass(frozen=True)
class RuntimeConfig:
    """How a runtime runs its agent."""

    sandbox_user: str | None = "agent"
    sandbox_setup_timeout: float = 120.0
    max_rounds: int = 10
    snapshot_policy: str = "none"
    reward_stream: bool = True
    timeout: float | None = None
    """Seconds for the agent; None leaves the task's own limit."""
    jobs_dir: str | Path = "jobs"
    rollout_name: str | None = None
    skills_dir: str | Path | None = None
    skill_mode: str | None = None
    context_root: str | Path | None = None
    base_image_override: str | None = None
    pre_agent_hooks: Sequence[PreAgentHook] | None = None

    def __post_init__(self) -> None:
        if self.snapshot_policy != "none":
            raise BadValue(f"snapshot_policy is {self.snapshot_policy!r}", advice="no other than 'none' is supported")


@dataclass(frozen=True)
class RuntimeResult:
    """What a runtime gives."""

    task_name: str
    rollout_name: str
    reward: float | None
    rewards: Mapping[str, float] | None
    n_tool_calls: int
    error: str | None
    verifier_error: str | None
    trajectory: Sequence[Event]
    rollout_dir: Path | None
    started_at: str
    finished_at: str
    passed: bool
    messages: Sequence[Event] = ()
    snapshots: Sequence[str] = ()

    @property
    def verified(self) -> bool:
        """Whether there is a reward."""
        return self.reward is not None

    @classmethod
    def of(cls, result: RolloutResult) -> RuntimeResult:
        """Take it from the result of a rollout."""
        return cls(
            task_name=result.task_name,
            rollout_name=result.rollout_name,
            reward=result.reward,
            rewards=result.rewards,
            n_tool_calls=result.n_tool_calls,
            error=result.skipped if result.error is None else result.error.message,
            verifier_error=result.verifier_error,
            trajectory=result.trajectory,
            rollout_dir=result.rollout_dir,
            started_at=result.started_at,
            finished_at=result.finished_at,
            passed=result.passed,
        )


class Runtime:
    """An agent in an environment; a started environment is used as it is and left running."""

    def __init__(self, env: Environment, agent: RuntimeAgent, config: RuntimeConfig | None = None) -> None:
        self.env = env
        self.agent = agent
        self.config = config or RuntimeConfig()

    async def execute(self) -> RuntimeResult:
        """Run the agent on the environment's task and verify what it leaves."""
        played = {"agent": self.agent.name, "model": self.agent.model, "agent_env": dict(self.agent.env)}
        place = {"task_path": self.env.task_path, "rollout_name": self.env.rollout_name}
        sandbox, sandboxes = self.env.as_sandbox()
        settings = shared_settings(self.config)
        if settings["rollout_name"] is None:
            del settings["rollout_name"]
        config = make_config({**place, **settings, **played, "sandbox": sandbox})
        return RuntimeResult.of(await run_rollout(config, sandboxes=sandboxes))


@overload
async def run(subject: RolloutConfig) -> RolloutResult: ...


@overload
async def run(subject: RuntimeAgent, env: Environment, config: RuntimeConfig | None = None) -> RuntimeResult: ...


@overload
async def run(
    subject: str,
    env: str | None = None,
    config: RuntimeConfig | None = None,
    *,
    task_path: str | Path,
    model: str | None = None,
    sandbox: str | None = None,
) -> RolloutResult: ...


async def run(
    subject: object,
    env: object = None,
    config: RuntimeConfig | None = None,
    *,
    task_path: str | Path | None = None,
    model: str | None = None,
    sandbox: str | None = None,
) -> RolloutResult | RuntimeResult:
    """Run a configuration, an Agent in an Environment, or an agent by name on `task_path`."""
    beside = [name for name, value in (("task_path", task_path), ("model", model), ("sandbox", sandbox)) if value]
    if isinstance(subject, RolloutConfig):
        if beside or env is not None or config is not None:
            raise BadType("run(RolloutConfig) takes nothing else", advice="put it into the configuration")
        return await run_rollout(subject)
    if isinstance(subject, RuntimeAgent):
        if not isinstance(env, Environment):
            raise BadType("run(Agent) needs an Environment", advice="pass Environment.from_task(...) after it")
        if beside:
            raise BadType(
                f"run(Agent, Environment) takes no {beside[0]}", advice="agent and environment bring their own"
            )
        return await Runtime(env, subject, config).execute()
    if not isinstance(subject, str):
        kind = type(subject).__name__
        raise BadType(f"run() cannot run {kind}", advice="pass a RolloutConfig, an Agent, or the name of an agent")
    if task_path is None:
        raise BadValue(f"run({subject!r}) names no task", advice="pass task_path=")
    if isinstance(env, Environment):
        raise BadType("run() got an agent's name and an Environment", advice="pass Agent(name) before it")
    if env is not None and sandbox is not None:
        raise BadType("run() got env and sandbox, which are the same", advice="keep sandbox=")
    fields = {} if config is None else shared_settings(config)
    arguments = {"task_path": task_path, "agent": subject, "model": model, "sandbox": sandbox or env}
    return await run_rollout(make_config({**fields, **arguments}))
