"""Rollouts in ordinary tests: look into the sandbox, between the agent and the verifier."""

import pytest

pytestmark = [pytest.mark.asyncio, pytest.mark.bf_task("tasks/hello-world")]


async def test_the_agent_leaves_nothing_but_the_file(bf_rollout, bf_sandbox):
    before = await bf_sandbox.exec("ls /app")
    await bf_rollout.execute()
    after = await bf_sandbox.exec("ls /app")
    assert set(after.stdout.split()) - set(before.stdout.split()) == {"hello.txt"}
    assert (await bf_rollout.verify())["reward"] == 1.0


async def test_a_file_with_other_words_scores_nothing(bf_rollout, bf_sandbox):
    await bf_sandbox.exec("echo goodbye >/app/hello.txt")
    assert (await bf_rollout.verify())["reward"] == 0.0
