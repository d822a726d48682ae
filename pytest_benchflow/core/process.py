"""Processes of this machine: when one started, and forked copies of this one.

A sandbox ends when its connection to the runner does. A copy of the runner, as `multiprocessing` makes them, has that
connection too and would keep the sandboxes of a killed runner alive: it is cut there.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


def start_time(pid: int | str) -> str:
    """Return when a process started, which tells it from a later one of the same number; "" if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The command name may hold spaces and parentheses: fields count from the last one.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "" if os.path.isdir("/proc/self") or not _is_alive(int(pid)) else "alive"
    return "" if fields[0] in "ZX" else fields[19]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Connection(Protocol):
    """Something with a descriptor, which is negative once it is closed."""

    def fileno(self) -> int:
        """Return the descriptor."""


_connections: WeakSet[Connection] = WeakSet()


def keep_from_forks(connection: Connection) -> None:
    """Cut a connection in every copy of this process that is forked from now on."""
    _connections.add(connection)


def detach_connections() -> None:
    """Let every connection end at /dev/null; its number stays taken, for whoever will close it."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for connection in _connections:
        if (descriptor := _descriptor(connection)) >= 0:
            os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _descriptor(connection: Connection) -> int:
    try:
        return connection.fileno()
    except ValueError:  # what a closed file raises
        return -1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=detach_connections)
