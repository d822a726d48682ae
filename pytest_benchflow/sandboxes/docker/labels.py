"""What marks everything this package makes in a daemon, and tells whether its owner still lives."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

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
        OWNER: f"{_machine()}/{pid}/{_started(pid)}",
        OWNER_PID: str(pid),
        ROLLOUT: rollout,
        CREATED: str(int(time.time())),
    }


def is_orphan(labels: Mapping[str, str]) -> bool:
    """Say whether the process that made an object is gone; only its own machine can tell."""
    machine, _, rest = labels.get(OWNER, "").partition("/")
    pid, _, started = rest.partition("/")
    return machine == _machine() and pid.isdigit() and _started(int(pid)) != started


def _machine() -> str:
    """Name this machine since its last start; process numbers mean something only within it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:13]
        # A container sees the same boot, but other processes.
        return f"{socket.gethostname()}-{boot}-{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """Return when a process started, which tells it from a later one of the same number; "" if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        return "" if os.path.isdir("/proc/self") or not _alive(pid) else "alive"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
