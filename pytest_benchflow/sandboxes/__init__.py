"""Where agents and verifiers run: the `Sandbox` protocol and the registry of its backends."""

from __future__ import annotations

from .base import Backend, Capabilities, ExecResult, Limits, Process, Sandbox, SandboxSpec
from .registry import SandboxRegistry

__all__ = [
    "Backend",
    "Capabilities",
    "ExecResult",
    "Limits",
    "Process",
    "Sandbox",
    "SandboxRegistry",
    "SandboxSpec",
]
