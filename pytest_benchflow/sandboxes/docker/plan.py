"""Decide how the container of a sandbox is made: pure functions of the spec, the image and the engine."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pytest_benchflow.errors import UnsupportedError
from pytest_benchflow.sandboxes.base import Mount, SandboxSpec

from .channel import BOOTSTRAP

#: PID 1 ends at once on this signal; one that programs use among themselves could be sent by an agent.
STOP_SIGNAL = "SIGRTMIN+3"
#: Threads count too: enough for any build, and a fork bomb stays in its sandbox.
PIDS_LIMIT = 8192
VOLUME_PREFIX = "pytest-benchflow-bundle-"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine has."""

    cpus: int
    has_gpus: bool
    has_bridge: bool
    is_podman: bool = False
    has_limits: bool = True
    """Whether memory and processors can be limited: an engine without root needs control groups of its own."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an image says about itself."""

    reference: str
    user: str = ""
    workdir: str = ""
    is_task_files_only: bool = False
    """Whether the task's files are not in it and go to its working directory."""
    is_snapshot: bool = False
    """Whether nothing could make it again."""


def container_name(rollout: str) -> str:
    """Return a name no other container has, in which the rollout can be recognised."""
    return f"bf-{re.sub('[^a-zA-Z0-9_.-]+', '-', rollout)[:48].strip('-')}-{secrets.token_hex(4)}"


def volume_name(mount: Mount) -> str:
    """Return the volume that holds what a mount shows."""
    return f"{VOLUME_PREFIX}{re.sub('[^a-zA-Z0-9_.-]+', '-', mount.key)}"


def working_directory(spec: SandboxSpec, image: ImageFacts) -> str:
    """Return where commands run: the spec's choice, the image's, or /app; relative ones start from the one before."""
    if spec.workdir is None and not image.workdir:
        return "/app"
    return str(PurePosixPath("/") / image.workdir / (spec.workdir or ""))


def container_config(
    spec: SandboxSpec,
    image: ImageFacts,
    engine: EngineFacts,
    *,
    labels: Mapping[str, str],
    network: str,
    lease_sec: int,
) -> dict[str, Any]:
    """Return the body of the engine's create request."""
    limits = spec.limits
    if limits.gpus and not engine.has_gpus:
        raise UnsupportedError(f"{spec.name}: gpus = {limits.gpus}, and this Docker engine has no GPU runtime")
    host: dict[str, Any] = {
        "AutoRemove": True,
        "NetworkMode": network if spec.network else "none",
        "PidsLimit": limits.pids or PIDS_LIMIT,
        # What PID 1 prints are answers to the runner: a copy of them on the daemon's disk serves nobody.
        "LogConfig": {"Type": "none"},
    }
    if spec.network and network not in ("host", "none"):
        host["ExtraHosts"] = ["host.docker.internal:host-gateway"]
    if limits.cpus:
        host["NanoCpus"] = int(min(limits.cpus, engine.cpus) * 1e9)
    if limits.memory_mb:
        host["Memory"] = host["MemorySwap"] = limits.memory_mb << 20
    if spec.mounts:
        host["Mounts"] = [
            {
                "Type": "volume",
                "Source": volume_name(mount),
                "Target": mount.target,
                "ReadOnly": True,
                "VolumeOptions": {"NoCopy": True},
            }
            for mount in spec.mounts
        ]
    if limits.gpus:
        host["DeviceRequests"] = [{"Driver": "", "Count": limits.gpus, "Capabilities": [["gpu"]]}]
    return {
        "Image": image.reference,
        # The image's own entrypoint may swallow a command, and its user may not be allowed to see PID 1 off.
        "Entrypoint": [*BOOTSTRAP, str(lease_sec)],
        "Cmd": [],
        "User": "0",
        "WorkingDir": working_directory(spec, image),
        "Labels": dict(labels),
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "StopSignal": STOP_SIGNAL,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": host,
    }


def notes_for(spec: SandboxSpec, engine: EngineFacts) -> list[str]:
    """Return what the user should know about limits that cannot be kept."""
    notes = []
    if spec.limits.cpus and spec.limits.cpus > engine.cpus:
        notes.append(f"cpus = {spec.limits.cpus:g}, but the Docker engine has only {engine.cpus}")
    if not engine.has_limits and (spec.limits.cpus or spec.limits.memory_mb):
        notes.append("cpus and memory_mb are not enforced: this engine runs without root and has no control groups")
    if spec.limits.storage_mb:
        notes.append("storage_mb is not enforced by Docker")
    return notes
