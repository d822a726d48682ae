"""Hooks and an overridden fixture, with every type written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from company import make_agent, make_backend

from pytest_benchflow import Rollout, RolloutConfig, RolloutResult, Task
from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.reporting import Report
from pytest_benchflow.sandboxes import SandboxRegistry
from pytest_benchflow.services import ServiceConfig, ServiceRegistry


def pytest_bf_register_agents(registry: AgentRegistry) -> None:
    registry.register(make_agent())


def pytest_bf_register_sandboxes(registry: SandboxRegistry) -> None:
    registry.register("company", make_backend)


def pytest_bf_register_services(registry: ServiceRegistry) -> None:
    registry.register(ServiceConfig("board", "board-server", 9100, "/data/board.db"))


def pytest_bf_modify_task(task: Task) -> Task | None:
    return None


def pytest_bf_modify_config(config: RolloutConfig, task: Task) -> RolloutConfig | None:
    return replace(config, threshold=0.9) if task.difficulty == "easy" else None


def pytest_bf_rollout_phase(rollout: Rollout, phase: str) -> None:
    assert rollout.config.task_path
    assert phase.strip()


def pytest_bf_rollout_result(result: RolloutResult) -> None:
    print(f"{result.task_name}: {result.status}, reward {result.reward}")


def pytest_bf_summary(report: Report) -> None:
    print(f"\ncompany: {len(report.rollouts)} rollouts")


@pytest.fixture
def bf_config(bf_config: RolloutConfig) -> RolloutConfig:
    return replace(bf_config, timeout=60)
