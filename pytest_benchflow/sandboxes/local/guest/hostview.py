"""What of the host a sandbox may see: its system directories, without what ordinary users may not read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

_ALWAYS = ("etc", "opt", "usr")
#: Directories on old layouts, links into /usr on merged ones.
_MERGED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_PACKAGES = ("var/lib/apt", "var/lib/dpkg")
#: Where packages keep their state, how deep directories are repeated, and at most how many: those of a package that
#: the host has are there for others that need it, without what is in them.
_STATE = ("var/backups", "var/cache", "var/lib", "var/log", "var/spool")
_STATE_DEPTH, _MOST_STATE = 2, 400
#: How far to look for what is private, and how far to look again before each sandbox, for what is new: whole toolchains
#: lie in /opt. What packages bring to /usr is public throughout.
_DEPTHS = {"etc": (16, 16), "opt": (4, 2), "usr/local": (4, 2), "var/lib/apt": (2, 2), "var/lib/dpkg": (2, 2)}


@dataclass(frozen=True, slots=True)
class Area:
    """One host directory that sandboxes see through an overlay of their own."""

    path: str
    """Relative to the root."""
    hidden: tuple[str, ...] = ()
    """What is left out, relative to `path`."""
    has_mounts: bool = False

    @property
    def key(self) -> str:
        """Name the area's directory inside a layer."""
        return self.path.replace("/", "-")


@dataclass(frozen=True, slots=True)
class HostView:
    """All areas of this host and the links among its top-level directories."""

    areas: tuple[Area, ...]
    links: tuple[tuple[str, str], ...]
    state: tuple[tuple[str, int, int, int], ...] = ()
    """Directories of packages that are empty in a sandbox: path, mode, owner and group."""
    looked_into: tuple[tuple[str, int], ...] = ()
    """The directories in which something could have been private, and when each was last changed."""

    def is_current(self) -> bool:
        """Return whether nothing new that might be private has come since: a run may take days."""
        return all(_changed(path) == changed for path, changed in self.looked_into)

    def seen_by(self, *, privileged: bool) -> list[Area]:
        """List the areas to show; apt insists on owning its lists, so an ordinary user's sandbox fetches its own."""
        return [area for area in self.areas if privileged or area.path != "var/lib/apt"]


def detect() -> HostView:
    """Examine the host once."""
    mounts = _mount_points()
    areas = []
    looked_into: dict[str, int] = {}
    for path in (*_ALWAYS, *_MERGED, *_PACKAGES):
        full = f"/{path}"
        if os.path.islink(full) or not os.path.isdir(full):
            continue
        hidden = []
        for top, depths in _DEPTHS.items():
            if f"{top}/".startswith(f"{path}/") and os.path.isdir(f"/{top}"):
                hidden += _private(full, depths, looked_into, f"{top}/".removeprefix(f"{path}/"))
        areas.append(Area(path, tuple(hidden), any(m.startswith(f"{full}/") for m in mounts)))
    links = [(name, os.readlink(f"/{name}")) for name in _MERGED if os.path.islink(f"/{name}")]
    state = [row for top in _STATE for row in _open_directories(top, _STATE_DEPTH)]
    return HostView(tuple(areas), tuple(links), tuple(state[:_MOST_STATE]), tuple(looked_into.items()))


def _open_directories(top: str, depth: int) -> list[tuple[str, int, int, int]]:
    """List the directories below `top` that everyone may enter, parents first."""
    rows: list[tuple[str, int, int, int]] = []
    try:
        names = sorted(os.listdir(f"/{top}"))
    except OSError:
        return rows
    for path in (f"{top}/{name}" for name in names):
        try:
            status = os.lstat(f"/{path}")
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o005 == 0o005 and path not in _PACKAGES:
            rows.append((path, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid))
            rows += _open_directories(path, depth - 1) if depth > 1 else []
    return rows


def _private(top: str, depths: tuple[int, int], looked_into: dict[str, int], prefix: str = "") -> list[str]:
    """List what below `top` is not open to everyone, without descending into it."""
    found: list[str] = []
    depth, watched = depths
    if depth == 0:
        return found
    # Before its entries are read: what comes while they are is then taken for new.
    if watched > 0:
        looked_into[os.path.join(top, prefix)] = _changed(os.path.join(top, prefix))
    with os.scandir(os.path.join(top, prefix)) as entries:
        for entry in entries:
            path = f"{prefix}{entry.name}"
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    below = (depth - 1, watched - 1)
                    found += _private(top, below, looked_into, f"{path}/") if mode & 0o005 == 0o005 else [path]
                elif not stat.S_ISLNK(mode) and not mode & 0o004:
                    found.append(path)
            except OSError:
                # Gone meanwhile, or closed by something else than its mode, as on network file systems.
                found.append(path)
    return found


def _changed(directory: str) -> int:
    try:
        return os.stat(directory).st_mtime_ns
    except OSError:
        return 0


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        return [line.split(" ", 5)[4] for line in file]
