"""The fixture chain of every rollout item and of Python tests: each link can be overridden in a conftest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.current import get_run

if TYPE_CHECKING:
    from pytest_benchflow.agents import Agent, Session
    from pytest_benchflow.rollout import Rollout, RolloutConfig, RolloutResult
    from pytest_benchflow.run import Run
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.tasks import Task


@pytest.fixture
def bf_task(request: pytest.FixtureRequest) -> Task:
    """The task: of the collected item, or named by `@pytest.mark.bf_task(PATH)`."""
    return _run(request).task_of(request.node)


@pytest.fixture
def bf_trial() -> int:
    """The number of the repetition that `bf_trials` asked for."""
    return 1


@pytest.fixture
def bf_config(request: pytest.FixtureRequest, bf_task: Task) -> RolloutConfig:
    """The configuration of the rollout, after `pytest_bf_modify_config`."""
    return _run(request).config_of(request.node, bf_task)


@pytest.fixture
def _bf_started(request: pytest.FixtureRequest, bf_task: Task, bf_config: RolloutConfig) -> Iterator[Rollout]:
    run = _run(request)
    rollout = run.open_rollout(bf_config, bf_task)
    try:
        run.wait(rollout.setup())
        yield rollout
    finally:
        run.wait(rollout.cleanup())


@pytest.fixture
def bf_sandbox(request: pytest.FixtureRequest, _bf_started: Rollout) -> Sandbox:
    """The started sandbox of the task, healthy and ready for an agent."""
    run = _run(request)
    run.wait(_bf_started.start())
    return run.reachable(_bf_started.sandbox)


@pytest.fixture
def bf_agent(request: pytest.FixtureRequest, _bf_started: Rollout, bf_sandbox: Sandbox) -> Agent:
    """The agent, installed in the sandbox."""
    _run(request).wait(_bf_started.install_agent())
    return _bf_started.agent


@pytest.fixture
def bf_session(request: pytest.FixtureRequest, _bf_started: Rollout, bf_agent: Agent) -> Session:
    """An open session with the agent."""
    run = _run(request)
    return run.reachable(run.wait(_bf_started.connect()))


@pytest.fixture
def bf_rollout(request: pytest.FixtureRequest, _bf_started: Rollout, bf_agent: Agent) -> Rollout:
    """The rollout with its agent installed; await `execute()` and `verify()` on it."""
    return _run(request).reachable(_bf_started)


@pytest.fixture
def bf_run(request: pytest.FixtureRequest) -> Callable[[RolloutConfig], RolloutResult]:
    """A function that runs a whole rollout and returns its result."""
    run = _run(request)
    return lambda config: run.wait(run.rollout(config))


@pytest.fixture
def bf_result(request: pytest.FixtureRequest) -> RolloutResult:
    """The result of the whole rollout; what kept it from having a reward is an error of the setup, not a failure."""
    from pytest_benchflow.runloop import refuse_unjudgeable, result_for

    result = result_for(_run(request), request)
    request.node.ihook.pytest_bf_rollout_result(result=result)
    refuse_unjudgeable(result)
    return result


def _run(request: pytest.FixtureRequest) -> Run:
    return get_run(request.config)
