"""Real agents in the local sandbox, against the scripted model server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from agent_suite import AgentSuite
from project import Project
from real_agents import Bench, run_agents


@pytest.fixture(scope="module")
def bench(new_project: Callable[..., Project]) -> Iterator[Bench]:
    """Run everything once."""
    yield from run_agents(new_project("local"), "local")


class TestLocal(AgentSuite):
    """Namespaces and overlays on this host."""
