"""Limit sandboxes with control groups of the kernel, in the runner's own group or beside it.

Both generations are known: separate trees for memory, cpu and pids (v1), and the one tree of today (v2). Nothing here
is needed to start a sandbox: where the caller may not make groups, limits are not enforced, and the notes of the
sandbox say so.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.core.process import start_time

#: Enough for any build, and far from what a host can bear; bounds fork bombs in every sandbox.
MAX_PROCESSES = 4096
_CONTROLLERS = ("memory", "cpu", "pids")
_PERIOD_USEC = 100_000
_MIN_QUOTA_USEC = 1_000
_PREFIX = "bf-"
_VACATE_TIMES = 5
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Parent:
    """A directory of the host in which groups are made, and the controllers that work there."""

    path: Path
    controllers: tuple[str, ...]
    unified: bool = False

    def settings(
        self, cpus: float | None, memory_mb: int | None, pids: int | None = None
    ) -> Iterator[tuple[str, str, str]]:
        """Yield controller, file and value of each limit; what only some kernels have begins with a dash."""
        if "pids" in self.controllers:
            yield "pids", "pids.max", str(pids or MAX_PROCESSES)
        if "memory" in self.controllers and memory_mb is not None:
            size = str(memory_mb << 20)
            if self.unified:
                yield from (("memory", "memory.max", size), ("memory", "-memory.swap.max", "0"))
            else:
                yield "memory", "memory.limit_in_bytes", size
                yield "memory", "-memory.memsw.limit_in_bytes", size
        if "cpu" in self.controllers and cpus is not None:
            quota = max(_MIN_QUOTA_USEC, round(cpus * _PERIOD_USEC))
            if self.unified:
                yield "cpu", "cpu.max", f"{quota} {_PERIOD_USEC}"
            else:
                yield from (("cpu", "cpu.cfs_period_us", str(_PERIOD_USEC)), ("cpu", "cpu.cfs_quota_us", str(quota)))


class Group:
    """The control group of one sandbox: a directory in each tree."""

    def __init__(self, directories: dict[Path, frozenset[str]]) -> None:
        self._directories = directories
        """With the controllers whose limits were set there."""

    @property
    def paths(self) -> list[str]:
        """Where a process enters the group."""
        return [str(path) for path in self._directories]

    def enforced(self, entered: Iterable[str]) -> frozenset[str]:
        """Return the controllers that limit a sandbox which could enter these of its directories."""
        return frozenset[str]().union(*(self._directories[Path(path)] for path in entered))

    def oom_kills(self) -> int:
        """Count the processes that were killed for taking more memory than allowed."""
        for path, name in itertools.product(self._directories, ("memory.events", "memory.oom_control")):
            with contextlib.suppress(OSError):
                rows = dict(line.split() for line in (path / name).read_text().splitlines())
                return int(rows.get("oom_kill", 0))
        return 0

    def remove(self) -> bool:
        """Remove the group; False if a process is still in it."""
        left = [path for path in self._directories if not _remove(path)]
        return not left


class Cgroups:
    """Makes groups for the sandboxes of one runner."""

    def __init__(self, parents: Iterable[Parent]) -> None:
        self._parents = tuple(parents)
        self._name = f"{_PREFIX}{os.getpid()}-{start_time(os.getpid())}"
        self._leftovers: list[Group] = []

    @classmethod
    def detect(cls) -> Cgroups:
        """Find where the caller may make groups, and remove what killed runners left there."""
        parents = find_parents(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
        for parent in parents:
            sweep(parent.path)
        return cls(parents)

    def make(self, cpus: float | None, memory_mb: int | None, pids: int | None = None) -> Group:
        """Make a group with these limits, as far as the host allows."""
        self.tidy()
        name = f"{self._name}-{next(_numbers)}"
        made: dict[Path, frozenset[str]] = {}
        for parent in self._parents:
            settings = list(parent.settings(cpus, memory_mb, pids))
            directory = parent.path / name
            # A tree of its own for a limit that nobody asked for is not worth its time.
            if not settings:
                continue
            with contextlib.suppress(OSError):
                directory.mkdir()
                made[directory] = _apply(directory, settings)
        return Group(made)

    def discard(self, group: Group) -> None:
        """Remove a group now, or as soon as its last process is gone."""
        if not group.remove():
            self._leftovers.append(group)

    def tidy(self) -> bool:
        """Remove what could not be removed before; return whether nothing is left."""
        self._leftovers = [group for group in self._leftovers if not group.remove()]
        return not self._leftovers


def find_parents(mountinfo: str, membership: str) -> list[Parent]:
    """Find where in the trees of this host the caller may make groups, given both files of /proc/self."""
    own = {names: path for _, names, path in (line.split(":", 2) for line in membership.splitlines())}
    parents: list[Parent] = []
    missing = set(_CONTROLLERS)
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        root, point = fields.split()[3:5]
        kind, _, options = rest.split(" ", 2)
        if kind == "cgroup" and (found := missing & set(options.split(","))):
            path = next((path for names, path in own.items() if found & set(names.split(","))), None)
            if (directory := _below(point, root, path)) and os.access(directory, os.W_OK):
                parents.append(Parent(directory, tuple(sorted(found))))
            missing -= found
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        root, point = fields.split()[3:5]
        if not rest.startswith("cgroup2 ") or not missing or not (directory := _below(point, root, own.get(""))):
            continue
        if parent := _find_unified(directory, Path(point), missing):
            parents.append(parent)
            missing -= set(parent.controllers)
    return parents


def _find_unified(own: Path, top: Path, wanted: set[str]) -> Parent | None:
    """Find where groups can be made in the one tree: in the caller's own group, beside it, or in it once emptied."""
    for place in (own,) if own == top else (own, own.parent):
        if found := _enable(place, wanted):
            return Parent(place, tuple(sorted(found)), unified=True)
    if _is_delegated(own, top) and _vacate(own) and (found := _enable(own, wanted)):
        return Parent(own, tuple(sorted(found)), unified=True)
    return None


def _is_delegated(group: Path, top: Path) -> bool:
    """Return whether a group is the caller's to divide: a user's by its owner, root's if it is all of a container."""
    try:
        ours = group.stat().st_uid == os.geteuid() and (os.geteuid() != 0 or group == top)
        offered = set((group / "cgroup.controllers").read_text().split())
        return ours and (group / "cgroup.type").exists() and not offered.isdisjoint(_CONTROLLERS)
    except OSError:
        return False


def _vacate(group: Path) -> bool:
    """Move all processes of a group into one inside it, so that others beside them can have limits."""
    inner = group / f"{_PREFIX}runner"
    with contextlib.suppress(OSError):
        inner.mkdir(exist_ok=True)
        # More than once: they may be starting others.
        for _ in range(_VACATE_TIMES):
            pids = (group / "cgroup.procs").read_text().split()
            # One that has no number here belongs to somebody else.
            if not pids or "0" in pids:
                return not pids
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    (inner / "cgroup.procs").write_text(pid)
    return False


def sweep(directory: Path) -> None:
    """Remove the groups of runners that have ended, here and in the neighbouring groups."""
    for path in {*directory.glob(f"{_PREFIX}*-*-*"), *directory.parent.glob(f"*/{_PREFIX}*-*-*")}:
        pid, started, _ = path.name.removeprefix(_PREFIX).split("-", 2)
        if pid.isdigit() and start_time(pid) != started:
            _remove(path)


def _below(point: str, root: str, path: str | None) -> Path | None:
    """Return where a group lies on a mount that shows the tree from `root` on."""
    if path is None or not (path == root or path.startswith(f"{root.rstrip('/')}/")):
        return None
    return Path(point, path[len(root.rstrip("/")) :].lstrip("/"))


def _enable(directory: Path, wanted: set[str]) -> set[str]:
    """Let the groups in `directory` have the wanted controllers; return those that they have."""
    control = directory / "cgroup.subtree_control"
    try:
        # A group with processes cannot have groups with limits inside, unless it is the root of all, which has no type.
        occupied = (directory / "cgroup.type").exists() and (directory / "cgroup.procs").read_text().strip()
        if occupied or not os.access(directory, os.W_OK):
            return set()
        offered = wanted & set((directory / "cgroup.controllers").read_text().split())
        for name in sorted(offered - set(control.read_text().split())):
            with contextlib.suppress(OSError), open(control, "a") as file:
                file.write(f" +{name}")
        return wanted & set(control.read_text().split())
    except OSError:
        return set()


def _apply(directory: Path, settings: list[tuple[str, str, str]]) -> frozenset[str]:
    refused = set()
    for controller, name, value in settings:
        try:
            # Not write_text: it would make a file that the kernel does not offer.
            with open(directory / name.removeprefix("-"), "r+") as file:
                file.write(value)
        except OSError:
            if not name.startswith("-"):
                refused.add(controller)
    return frozenset(controller for controller, _, _ in settings if controller not in refused)


def _remove(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
