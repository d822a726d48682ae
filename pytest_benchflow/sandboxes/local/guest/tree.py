"""Kill a supervisor with everything that descends from it, or halt all that runs in a sandbox for a while."""

from __future__ import annotations

import os
import signal
import time

#: A process stuck in the kernel cannot die; the caller must not wait for it for ever.
PATIENCE_SEC = 10.0
#: Stopped, traced, or dead.
_HALTED = "TtZX"


def kill(supervisor: int) -> int:
    """Kill all descendants of `supervisor`, then itself."""
    # A stopped supervisor stays the parent of every orphan, so no descendant can slip away to init meanwhile.
    _signal(supervisor, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_SEC
    # Until it has stopped, it may be about to have a child that nobody sees yet.
    while (found := _state_and_parent(str(supervisor))) and found[0] not in _HALTED and time.monotonic() < deadline:
        time.sleep(0.0005)
    # Stopped first, killed then: each one killed would only make room for the next child of a fork bomb.
    stopped: set[int] = set()
    while (new := set(descendants(supervisor)) - stopped) and time.monotonic() < deadline:
        for pid in new:
            _signal(pid, signal.SIGSTOP)
        stopped |= new
    while (alive := descendants(supervisor)) and time.monotonic() < deadline:
        for pid in alive:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.001)
    _signal(supervisor, signal.SIGKILL)
    return 0


def halt() -> int:
    """Stop every process but init and the caller, and return when they have."""
    _signal(-1, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_SEC
    while _is_anything_running() and time.monotonic() < deadline:
        time.sleep(0.001)
    return 0


def resume() -> int:
    """Let every process go on."""
    _signal(-1, signal.SIGCONT)
    return 0


def _is_anything_running() -> bool:
    pids = (name for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid()))
    return any(found[0] not in _HALTED for pid in pids if (found := _state_and_parent(pid)))


def descendants(root: int) -> list[int]:
    """List the living processes below `root`."""
    children: dict[int, list[int]] = {}
    dead = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _state_and_parent(name)):
            state, parent = found
            children.setdefault(parent, []).append(int(name))
            if state in "ZX":
                dead.add(int(name))
    below: list[int] = []
    todo = [root]
    while todo:
        todo += (found_children := children.get(todo.pop(), []))
        below += found_children
    return [pid for pid in below if pid not in dead]


def _state_and_parent(pid: str) -> tuple[str, int] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command name may hold spaces and parentheses: fields count from the last one.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1])


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
