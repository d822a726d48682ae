"""Rollouts in a typed test module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_benchflow import Rollout, RolloutConfig, RolloutResult, Task
from pytest_benchflow.sandboxes import ExecResult, Sandbox


@pytest.mark.asyncio
@pytest.mark.bf_task("tasks/hello-world")
async def test_the_file_is_there_before_the_verifier_comes(
    bf_task: Task, bf_config: RolloutConfig, bf_rollout: Rollout, bf_sandbox: Sandbox
) -> None:
    assert bf_task.name.endswith("hello-world")
    assert bf_config.timeout == 60
    await bf_rollout.execute()
    done: ExecResult = await bf_sandbox.exec("cat /app/hello.txt")
    assert done.stdout == "Hello, world!\n"
    rewards = await bf_rollout.verify()
    assert rewards is not None
    assert rewards["reward"] == 1.0


def test_a_rollout_of_its_own(bf_run: Callable[[RolloutConfig], RolloutResult]) -> None:
    result = bf_run(RolloutConfig(task_path=Path("tasks/hello-world"), agent="nop", sandbox="local"))
    assert (result.status, result.reward) == ("failed", 0.0)
