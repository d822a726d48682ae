"""What this process may use of its machine: cores and memory, as far as control groups let it have them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_MB = 1 << 20


def usable_cores(proc: Path = _PROC, groups: Path = _GROUPS, *, present: int | None = None) -> int:
    """Return how many cores this process may keep busy, of those it may run on; a part of one counts as one."""
    cores = float(len(os.sched_getaffinity(0)) if present is None else present)
    for group in _own_groups("", proc, groups):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        cores = min(cores, _share(quota, period))
    for group in _own_groups("cpu", proc, groups):
        cores = min(cores, _share(_text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")))
    return max(1, math.ceil(cores))


def free_memory_mb(proc: Path = _PROC, groups: Path = _GROUPS) -> float:
    """Return what this process may still use: of the machine, and of the control groups it is in."""
    free = float("inf")
    for line in _text(proc / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) / 1024
    for group in _own_groups("", proc, groups):
        free = min(free, _left(group, "memory.max", "memory.current", "inactive_file"))
    for group in _own_groups("memory", proc, groups):
        free = min(free, _left(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
    return free


def _own_groups(controller: str, proc: Path, groups: Path) -> Iterator[Path]:
    """Yield the groups of this process from the outermost on; an empty controller is version 2, which has all of them.

    In a container the outermost one is often that of the container itself, whatever the kernel calls it.
    """
    outermost = groups / controller
    if not outermost.is_dir():
        return
    yield outermost
    for line in _text(proc / "self/cgroup").splitlines():
        _, names, path = [*line.split(":", 2), "", ""][:3]
        if controller in names.split(","):
            group = outermost
            for part in Path(path).parts[1:]:
                group /= part
                yield group


def _left(group: Path, limit: str, usage: str, cache: str) -> float:
    """Return the megabytes that a group may still use; files that the kernel can drop from memory use none."""
    try:
        used = int(_text(group / usage))
        for line in _text(group / "memory.stat").splitlines():
            name, _, value = line.partition(" ")
            if name == cache:
                used -= int(value)
        return max(0.0, (int(_text(group / limit)) - used) / _MB)
    except ValueError:  # no such group, or no limit
        return float("inf")


def _share(quota: str, period: str) -> float:
    try:
        return int(quota) / int(period) if int(quota) > 0 else float("inf")
    except (ValueError, ZeroDivisionError):  # no such group, or no limit
        return float("inf")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
