"""The demo benchmark itself: sound tasks, and the same outcomes wherever they run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project

TASKS = Path(__file__).parents[2] / "tasks"
Outcomes = dict[str, tuple[str, float]]


def outcomes(project: Project, sandbox: str, **env: str) -> Outcomes:
    """Run nop, which must not pass, and oracle, which must, on every task."""
    report = project.root / f"{sandbox}.json"
    done = project.run(str(TASKS), "--bf-selftest", "--bf-sandbox", sandbox, "--bf-json", str(report), env=env)
    assert done.ret == 0, done.stdout.str()
    rollouts = json.loads(report.read_text())["rollouts"]
    return {entry["id"]: (entry["status"], entry["result"]["reward"]) for entry in rollouts}


@pytest.fixture(scope="module")
def project(new_project: Callable[..., Project]) -> Project:
    return new_project()


@pytest.fixture(scope="module")
def local(project: Project) -> Outcomes:
    return outcomes(project, "local")


def test_every_task_gives_all_to_its_solution_and_nothing_to_idleness(local: Outcomes) -> None:
    rewards: dict[bool, set[float]] = {True: set(), False: set()}
    for nodeid, (_, reward) in local.items():
        rewards[nodeid.endswith("::oracle")].add(reward)
    assert rewards == {True: {1.0}, False: {0.0}}
    assert len(local) == 2 * sum(path.is_dir() for path in TASKS.iterdir())


@pytest.mark.docker
def test_docker_gives_the_same_outcomes(local: Outcomes, project: Project) -> None:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    assert outcomes(project, "docker", DOCKER_HOST=address) == local


def test_the_helper_that_every_task_carries_is_the_same_everywhere() -> None:
    # A task has to be complete by itself, so they cannot share one file.
    copies = sorted(TASKS.glob("*/*/checks.py"))
    assert len(copies) >= 19
    assert {path.read_bytes() for path in copies} == {copies[0].read_bytes()}, "change all of them together"
