"""Real agents in Docker containers, against the scripted model server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from agent_suite import AgentSuite
from project import Project
from real_agents import Bench, run_agents

from pytest_benchflow.sandboxes.docker import daemon_answers


@pytest.fixture(scope="module")
def bench(new_project: Callable[..., Project]) -> Iterator[Bench]:
    """Run everything once, on the network of this host, where the server listens."""
    if not os.environ.get("BF_REQUIRE_DOCKER") and not daemon_answers():
        pytest.skip("no Docker daemon answers")
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    yield from run_agents(new_project("docker"), "docker", "--bf-docker-network", "host", DOCKER_HOST=address)


@pytest.mark.docker
class TestDocker(AgentSuite):
    """Containers."""

    def test_each_rollout_had_a_container(self, bench: Bench) -> None:
        assert len(bench.watch.containers) >= len(bench.cells)

    def test_no_container_is_left(self, bench: Bench) -> None:
        assert bench.watch.left_containers() == []
