"""Agents: what can be put to work on a task."""

from pytest_benchflow.agents.base import (
    Agent,
    AgentContext,
    AgentOutcome,
    Event,
    Json,
    PromptResult,
    Session,
)
from pytest_benchflow.agents.registry import FREE_AGENTS, AgentRegistry

__all__ = [
    "FREE_AGENTS",
    "Agent",
    "AgentContext",
    "AgentOutcome",
    "AgentRegistry",
    "Event",
    "Json",
    "PromptResult",
    "Session",
]
