"""How long each part of a rollout may take, when a multi-step task goes on, and what its steps are worth together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.scenes import Role, Scene
    from pytest_benchflow.tasks import EnvironmentConfig, Task, TaskStep


def reaches(rewards: Mapping[str, float], minimum: float | Mapping[str, float] | None) -> bool:
    """Tell whether a step did well enough for the next one; a key that is missing never does."""
    if minimum is None:
        return True
    wanted = minimum if isinstance(minimum, Mapping) else {"reward": minimum}
    return all(rewards.get(key, -math.inf) >= least for key, least in wanted.items())


def combine(steps: Sequence[Mapping[str, float]], strategy: Literal["mean", "final"] | None) -> dict[str, float]:
    """Return the rewards of the whole task: per key the mean over the steps that ran, or those of the last one."""
    if strategy == "final":
        return dict(steps[-1])
    keys = dict.fromkeys(key for rewards in steps for key in rewards)
    return {key: math.fsum(rewards.get(key, 0.0) for rewards in steps) / len(steps) for key in keys}


UNLIMITED_AGENT_SEC = 24 * 3600.0
_MARGIN_SEC = 1800.0


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
    """Return the seconds after which something is wrong with the rollout itself; `rounds` are those with a user."""
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
