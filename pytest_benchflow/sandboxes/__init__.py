"""Where agents and verifiers run: the `Sandbox` protocol and the registry of its backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.late import late

from .base import (
    Backend,
    Capabilities,
    ExecResult,
    HasServices,
    Limits,
    Mount,
    Process,
    Sandbox,
    SandboxImage,
    SandboxSpec,
    Service,
)
from .emptying import emptied
from .registry import SandboxRegistry
from .selection import upload_selected
from .services import MAIN, service_of, stop_main

if TYPE_CHECKING:
    from .leftovers import (
        CONTEXT_PREFIX,
        Leftovers,
        Trace,
        docker_images,
        docker_leftovers,
        local_layers,
        local_leftovers,
    )

__all__ = [
    "CONTEXT_PREFIX",
    "MAIN",
    "Backend",
    "Capabilities",
    "ExecResult",
    "HasServices",
    "Leftovers",
    "Limits",
    "Mount",
    "Process",
    "Sandbox",
    "SandboxImage",
    "SandboxRegistry",
    "SandboxSpec",
    "Service",
    "Trace",
    "docker_images",
    "docker_leftovers",
    "emptied",
    "local_layers",
    "local_leftovers",
    "service_of",
    "stop_main",
    "upload_selected",
]

__getattr__, __dir__ = late(
    __name__,
    {
        "leftovers": (
            "CONTEXT_PREFIX",
            "Leftovers",
            "Trace",
            "docker_images",
            "docker_leftovers",
            "local_layers",
            "local_leftovers",
        ),
    },
)
