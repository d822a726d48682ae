"""Processes of this machine, as tests look for them: who descends from whom, and who is still there."""

from __future__ import annotations

import os
from pathlib import Path


def stat(pid: int) -> list[str]:
    """Return the fields of a process after its name, or nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def command_line(pid: int) -> bytes:
    """Return how a process was started, or nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def all_pids() -> list[int]:
    """Return every process."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(root: int) -> set[int]:
    """Return a process and everything it started, directly or not."""
    parents = {pid: int(fields[1]) for pid in all_pids() if (fields := stat(pid))}
    found, more = set(), {root}
    while more:
        found |= more
        more = {pid for pid, parent in parents.items() if parent in found} - found
    return found


def start_times(pids: set[int]) -> dict[int, str]:
    """Return when each process started, which tells it from a later one with the same number."""
    return {pid: fields[19] for pid in pids if (fields := stat(pid))}


def alive(known: dict[int, str]) -> list[int]:
    """Return those of the known processes that still run; one that only waits to be reaped does not."""
    return [pid for pid, started in known.items() if (now := stat(pid)) and now[19] == started and now[0] != "Z"]
