"""Agents: what can be put to work on a task."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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
from pytest_benchflow.agents.registry import FREE_AGENTS, AgentRegistry

if TYPE_CHECKING:
    from pytest_benchflow.agents.acp_agent import AcpAgent
    from pytest_benchflow.agents.bundles import Bundle, BundleSpec, BundleStore
    from pytest_benchflow.agents.legacy import CredentialFile, HostAuthFile, SubscriptionAuth
    from pytest_benchflow.agents.manifest import AgentManifest
    from pytest_benchflow.agents.manifest_file import parse_manifest, read_manifest
    from pytest_benchflow.agents.preflight import missing_access
    from pytest_benchflow.agents.registration import get_agent, list_agents, register_agent
    from pytest_benchflow.agents.status import AgentStatus, describe, statuses

_HOMES = {
    "AcpAgent": "acp_agent",
    "AgentManifest": "manifest",
    "AgentStatus": "status",
    "Bundle": "bundles",
    "BundleSpec": "bundles",
    "BundleStore": "bundles",
    "CredentialFile": "legacy",
    "HostAuthFile": "legacy",
    "SubscriptionAuth": "legacy",
    "describe": "status",
    "get_agent": "registration",
    "list_agents": "registration",
    "missing_access": "preflight",
    "parse_manifest": "manifest_file",
    "read_manifest": "manifest_file",
    "register_agent": "registration",
    "statuses": "status",
}

__all__ = [
    "FREE_AGENTS",
    "Access",
    "AcpAgent",
    "Agent",
    "AgentContext",
    "AgentManifest",
    "AgentOutcome",
    "AgentRegistry",
    "AgentRequest",
    "AgentStatus",
    "Bundle",
    "BundleSpec",
    "BundleStore",
    "CredentialFile",
    "HomeFile",
    "HostAuthFile",
    "PromptResult",
    "Session",
    "SubscriptionAuth",
    "Usage",
    "describe",
    "get_agent",
    "list_agents",
    "missing_access",
    "parse_manifest",
    "read_manifest",
    "register_agent",
    "statuses",
]


def __getattr__(name: str) -> object:
    """Import what few runs need when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
