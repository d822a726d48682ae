"""Real agents in Docker containers, against the scripted model server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import pytest
from agent_suite import AgentSuite
from host_watch import containers
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

    def test_no_container_is_left(self, bench: Bench) -> None:
        ids = {json.loads((cell.directory / "sandbox.json").read_text())["id"] for cell in bench.cells.values()}
        assert len(ids) == len(bench.cells)
        assert not [name for name in containers() if name in ids]
