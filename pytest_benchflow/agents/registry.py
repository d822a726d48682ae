"""The agents this run knows: built in, from entry points, from `pytest_bf_register_agents`."""

from __future__ import annotations

from importlib.metadata import entry_points

from pytest_benchflow.agents.base import Agent
from pytest_benchflow.agents.nop import NopAgent
from pytest_benchflow.agents.oracle import OracleAgent
from pytest_benchflow.errors import UsageError
from pytest_benchflow.hints import did_you_mean

ENTRY_POINT_GROUP = "pytest_benchflow.agents"
FREE_AGENTS = frozenset({"oracle", "nop"})
"""Agents that call no model, so running them costs nothing."""


class AgentRegistry:
    """Look agents up by name; an unknown one is answered with the nearest known."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent] = {}
        self.register(OracleAgent())
        self.register(NopAgent())

    def register(self, agent: Agent) -> None:
        """Add an agent; a name can be taken once."""
        if agent.name in self._agents:
            raise UsageError(f"agent {agent.name!r} is registered twice", advice="give one of them another name")
        self._agents[agent.name] = agent

    def load_entry_points(self) -> None:
        """Add what installed packages offer: each entry point names a callable that returns an agent."""
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            self.register(entry.load()())

    def names(self) -> list[str]:
        """Return every known name, sorted."""
        return sorted(self._agents)

    def get(self, name: str) -> Agent:
        """Return the agent called `name`."""
        try:
            return self._agents[name]
        except KeyError:
            raise UsageError(f"unknown agent {name!r}", advice=did_you_mean(name, self._agents)) from None
