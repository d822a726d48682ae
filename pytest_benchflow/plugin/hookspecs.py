"""Hooks a conftest or another plugin may implement; all of them are optional."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_benchflow.agents import AgentRegistry
    from pytest_benchflow.reporting import Report
    from pytest_benchflow.rollout import Rollout, RolloutConfig, RolloutResult
    from pytest_benchflow.sandboxes import SandboxRegistry
    from pytest_benchflow.services import ServiceRegistry
    from pytest_benchflow.tasks import Task


def pytest_bf_register_agents(registry: AgentRegistry) -> None:
    """Add agents to the registry."""


def pytest_bf_register_sandboxes(registry: SandboxRegistry) -> None:
    """Add sandbox backends to the registry."""


def pytest_bf_register_services(registry: ServiceRegistry) -> None:
    """Add services that rollouts can start in their sandboxes."""


@pytest.hookspec(firstresult=True)
def pytest_bf_modify_task(task: Task) -> Task | None:
    """Return a changed task, or None to leave it; the first answer counts."""


@pytest.hookspec(firstresult=True)
def pytest_bf_modify_config(config: RolloutConfig, task: Task) -> RolloutConfig | None:
    """Return a changed configuration of one rollout, or None to leave it; the first answer counts."""


def pytest_bf_rollout_phase(rollout: Rollout, phase: str) -> None:
    """Hear that a rollout enters a phase. Called on the engine's thread: be quick, do not touch pytest."""


def pytest_bf_rollout_result(result: RolloutResult) -> None:
    """Hear the result of a rollout, in the process that ran it, when its item is reached."""


def pytest_bf_summary(report: Report) -> None:
    """Read, or publish elsewhere, the report of the whole run; called once, where pytest was started."""


def pytest_bf_gate(results: Sequence[RolloutResult]) -> str | bool | None:
    """Judge all results of a run: True if they are good enough, a text that says why not, or None for no opinion.

    Any judgement is a gate like those of `--bf-gate`: gates, not single items, then decide the exit status. Called
    once, where pytest was started; quarantined rollouts are left out.
    """
