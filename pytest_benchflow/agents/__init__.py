"""Agents: what can be put to work on a task."""

from pytest_benchflow.agents.base import (
    Access,
    Agent,
    AgentContext,
    AgentOutcome,
    AgentRequest,
    HomeFile,
    PromptResult,
    Session,
    Usage,
)
from pytest_benchflow.agents.bundles import Bundle, BundleSpec, BundleStore
from pytest_benchflow.agents.registry import FREE_AGENTS, AgentRegistry

__all__ = [
    "FREE_AGENTS",
    "Access",
    "Agent",
    "AgentContext",
    "AgentOutcome",
    "AgentRegistry",
    "AgentRequest",
    "Bundle",
    "BundleSpec",
    "BundleStore",
    "HomeFile",
    "PromptResult",
    "Session",
    "Usage",
]
