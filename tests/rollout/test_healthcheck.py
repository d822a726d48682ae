"""How long an environment may take to become ready."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_sandbox import Answer, FakeSandbox, failed, ok

from pytest_benchflow.core.errors import BenchflowError, Category
from pytest_benchflow.rollout.setup import wait_until_healthy
from pytest_benchflow.tasks import Healthcheck


def check(**more: float) -> Healthcheck:
    values = {"interval_sec": 0.001, "start_interval_sec": 0.001, **more}
    return Healthcheck.model_validate({"command": "curl -f localhost", **values})


def in_turn(*answers: Answer) -> Callable[[str], Answer]:
    """Give the answers one after the other, and the last one for ever."""
    left = list(answers)
    return lambda cmd: left.pop(0) if len(left) > 1 else left[0]


async def test_one_success_is_enough() -> None:
    sandbox = FakeSandbox(in_turn(ok()))
    await wait_until_healthy(sandbox, check())
    assert sandbox.commands == ["curl -f localhost"]


async def test_it_is_tried_again_until_it_succeeds() -> None:
    sandbox = FakeSandbox(in_turn(failed(), failed(), ok()))
    await wait_until_healthy(sandbox, check(retries=3))
    assert len(sandbox.commands) == 3


async def test_too_many_failures_are_an_error_that_says_what_the_last_one_said() -> None:
    sandbox = FakeSandbox(in_turn(failed(7, "could not\nconnect")))
    with pytest.raises(BenchflowError, match=r"failed 2 times: exit status 7, connect") as caught:
        await wait_until_healthy(sandbox, check(retries=2))
    assert caught.value.category is Category.HEALTHCHECK
    assert len(sandbox.commands) == 2


async def test_failures_in_the_start_period_do_not_count() -> None:
    sandbox = FakeSandbox(in_turn(*[failed()] * 20, ok()))
    await wait_until_healthy(sandbox, check(retries=1, start_period_sec=3600))
    assert len(sandbox.commands) == 21


async def test_a_probe_that_hangs_is_one_failed_try() -> None:
    sandbox = FakeSandbox(in_turn(TimeoutError(), ok()))
    await wait_until_healthy(sandbox, check(retries=2))
    assert len(sandbox.commands) == 2


async def test_every_probe_has_its_time_limit() -> None:
    sandbox = FakeSandbox(in_turn(ok()))
    await wait_until_healthy(sandbox, check(timeout_sec=12.5))
    assert sandbox.timeouts == [12.5]


async def test_hanging_until_the_end_says_for_how_long() -> None:
    with pytest.raises(BenchflowError, match=r"failed 1 times: no answer within 12\.5 s"):
        await wait_until_healthy(FakeSandbox(in_turn(TimeoutError())), check(retries=1, timeout_sec=12.5))
