"""Agents: what can be put to work on a task."""

from __future__ import annotations

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
from pytest_benchflow.late import late

if TYPE_CHECKING:
    from pytest_benchflow.agents.acp_agent import AcpAgent
    from pytest_benchflow.agents.bundles import Bundle, BundleSpec, BundleStore
    from pytest_benchflow.agents.legacy import CredentialFile, HostAuthFile, SubscriptionAuth
    from pytest_benchflow.agents.manifest import AgentManifest
    from pytest_benchflow.agents.manifest_file import parse_manifest, read_manifest
    from pytest_benchflow.agents.preflight import missing_access
    from pytest_benchflow.agents.registration import get_agent, list_agents, register_agent
    from pytest_benchflow.agents.status import AgentStatus, describe, statuses

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

__getattr__, __dir__ = late(
    __name__,
    {
        "acp_agent": ("AcpAgent",),
        "bundles": ("Bundle", "BundleSpec", "BundleStore"),
        "legacy": ("CredentialFile", "HostAuthFile", "SubscriptionAuth"),
        "manifest": ("AgentManifest",),
        "manifest_file": ("parse_manifest", "read_manifest"),
        "preflight": ("missing_access",),
        "registration": ("get_agent", "list_agents", "register_agent"),
        "status": ("AgentStatus", "describe", "statuses"),
    },
)
