"""The fixture chain of every rollout item and of Python tests: each link can be overridden in a conftest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.plugin.stash import as_pytest_outcome, get_session
from pytest_benchflow.rollout.settings import MAX_TRIALS

if TYPE_CHECKING:
    from pytest_benchflow.agents import Agent, Session
    from pytest_benchflow.plugin.session import BenchSession
    from pytest_benchflow.rollout import Rollout, RolloutConfig, RolloutResult
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.tasks import Task


def repeat(metafunc: pytest.Metafunc, marker: pytest.Mark) -> None:
    """Make as many items of a test as its marker asks for."""
    metafunc.fixturenames.append("bf_trial")
    metafunc.parametrize("bf_trial", range(1, _trials(metafunc, marker) + 1))


def _trials(metafunc: pytest.Metafunc, marker: pytest.Mark) -> int:
    number = marker.args[0] if len(marker.args) == 1 else None
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_TRIALS:
        name = metafunc.definition.nodeid
        pytest.fail(f"{name}: bf_trials takes one number from 1 to {MAX_TRIALS}; write bf_trials(3)", pytrace=False)
    return number


__all__ = [
    "bf_agent",
    "bf_config",
    "bf_prepared",
    "bf_result",
    "bf_rollout",
    "bf_run",
    "bf_sandbox",
    "bf_session",
    "bf_task",
    "bf_trial",
]


@pytest.fixture
def bf_task(request: pytest.FixtureRequest) -> Task:
    """The task: of the collected item, or named by `@pytest.mark.bf_task(PATH)`."""
    with as_pytest_outcome():
        return _run(request).task_of(request.node)


@pytest.fixture
def bf_trial() -> int:
    """The number of the repetition that `bf_trials` asked for."""
    return 1


@pytest.fixture
def bf_config(request: pytest.FixtureRequest, bf_task: Task) -> RolloutConfig:
    """The configuration of the rollout, after `pytest_bf_modify_config`."""
    with as_pytest_outcome():
        return _run(request).config_of(request.node, bf_task)


@pytest.fixture
def bf_prepared(request: pytest.FixtureRequest, bf_task: Task, bf_config: RolloutConfig) -> Iterator[Rollout]:
    """The rollout before its sandbox starts; cleaned up after the test."""
    run = _run(request)
    rollout = run.open_rollout(bf_config, bf_task)
    try:
        run.wait(rollout.setup())
        yield rollout
    finally:
        run.wait(rollout.cleanup())


@pytest.fixture
def bf_sandbox(request: pytest.FixtureRequest, bf_prepared: Rollout) -> Sandbox:
    """The started sandbox of the task, healthy and ready for an agent."""
    run = _run(request)
    run.wait(bf_prepared.start())
    return run.reachable(bf_prepared.sandbox)


@pytest.fixture
def bf_agent(request: pytest.FixtureRequest, bf_prepared: Rollout, bf_sandbox: Sandbox) -> Agent:
    """The agent, installed in the sandbox."""
    _run(request).wait(bf_prepared.install_agent())
    return bf_prepared.agent


@pytest.fixture
def bf_session(request: pytest.FixtureRequest, bf_prepared: Rollout, bf_agent: Agent) -> Session:
    """An open session with the agent."""
    run = _run(request)
    return run.reachable(run.wait(bf_prepared.connect()))


@pytest.fixture
def bf_rollout(request: pytest.FixtureRequest, bf_prepared: Rollout, bf_agent: Agent) -> Rollout:
    """The rollout with its agent installed; await `execute()` and `verify()` on it."""
    return _run(request).reachable(bf_prepared)


@pytest.fixture
def bf_run(request: pytest.FixtureRequest) -> Callable[[RolloutConfig], RolloutResult]:
    """A function that runs a whole rollout and returns its result."""
    run = _run(request)
    return run.run


@pytest.fixture
def bf_result(request: pytest.FixtureRequest) -> RolloutResult:
    """The result of the whole rollout; what kept it from having a reward is an error of the setup, not a failure."""
    from pytest_benchflow.plugin.run_loop import require_reward, result_for

    result = result_for(_run(request), request)
    request.node.ihook.pytest_bf_rollout_result(result=result)
    require_reward(result)
    return result


def _run(request: pytest.FixtureRequest) -> BenchSession:
    return get_session(request.config)
