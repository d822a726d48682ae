"""How the container of a sandbox is made: its names, labels and limits. Pure functions of spec, image and engine.

Everything that is made in a daemon carries labels that tell whether its owner still lives.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_benchflow.core.errors import SandboxError, UnsupportedError
from pytest_benchflow.core.files import cache_directory, locked_files
from pytest_benchflow.core.process import start_time
from pytest_benchflow.sandboxes.base import Mount, SandboxSpec
from pytest_benchflow.sandboxes.docker import channel
from pytest_benchflow.sandboxes.startup import ImageHealthcheck

RUN = "benchflow.run"
OWNER = "benchflow.owner"
OWNER_PID = "benchflow.owner_pid"
ROLLOUT = "benchflow.rollout"
CREATED = "benchflow.created"
#: What compose puts on everything of a project.
PROJECT = "com.docker.compose.project"
#: Labels cannot be changed later, names can.
KEPT_PREFIX = "bf-kept-"


def make_labels(run: str, rollout: str) -> dict[str, str]:
    """Return the labels of an object that this process makes now."""
    pid = os.getpid()
    return {
        RUN: run,
        OWNER: f"{_machine()}/{pid}/{start_time(pid)}",
        OWNER_PID: str(pid),
        ROLLOUT: rollout,
        CREATED: str(int(time.time())),
    }


def is_orphan(labels: Mapping[str, str]) -> bool:
    """Return whether the process that made an object is gone; only its own machine can tell."""
    machine, _, rest = labels.get(OWNER, "").partition("/")
    pid, _, started = rest.partition("/")
    return machine == _machine() and pid.isdigit() and start_time(pid) != started


def _machine() -> str:
    """Name this machine since its last start; process numbers mean something only within it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:13]
        # A container sees the same boot, but other processes.
        return f"{socket.gethostname()}-{boot}-{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        return socket.gethostname()


@contextlib.asynccontextmanager
async def locked(*names: str) -> AsyncIterator[None]:
    """Hold the first free one of these locks; polling, so that the wait can be cancelled."""
    async with locked_files(*(_directory() / f"{_file_name(name)}.lock" for name in names)):
        yield


def _file_name(name: str) -> str:
    """Return a name that any file system takes."""
    readable = re.sub("[^A-Za-z0-9_.-]+", "-", name)[:40]
    return readable if readable == name else f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _directory() -> Path:
    path = cache_directory() / "docker"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SandboxError(
            f"the directory {path} cannot be made: {error.strerror}",
            advice="set BF_CACHE_DIR to a directory you can write",
        ) from None
    return path


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
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """What a compose file lets main run, unless that only keeps it alive; never an image's own CMD."""
    healthcheck: ImageHealthcheck | None = None
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
        "NetworkMode": network,
        "PidsLimit": limits.pids or PIDS_LIMIT,
        # What PID 1 prints are answers to the runner: a copy of them on the daemon's disk serves nobody.
        "LogConfig": {"Type": "none"},
    }
    if network not in ("host", "none"):
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
        # The image's own runs below this one: it may end, and its user may not be allowed to see PID 1 off.
        "Entrypoint": list(channel.bootstrap(channel.FIRST_LINE_SEC, lease_sec)),
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
        # Ours to ask: an engine would go on to do so while agents and tests are at work.
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
