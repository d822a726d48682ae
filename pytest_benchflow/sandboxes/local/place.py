"""Choose where layers lie: in a directory of the caller's own that overlays can write to."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.cache import spare_layers
from pytest_benchflow.errors import SandboxError

from .guest import libc
from .uppers import directory_holds_writes

_ADVICE = "set BF_CACHE_DIR to a directory of your own"


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of the layers."""

    path: Path
    holds_writes: bool = True
    """Whether sandboxes can write there; otherwise layers can be read but not built."""
    notes: tuple[str, ...] = ()


def choose(wanted: Path, *, privileged: bool) -> Place:
    """Return `wanted` if it will do, else a directory on the local disk, else memory in its place if we may mount."""
    failure = None
    try:
        _make(wanted)
    except OSError as error:
        failure = SandboxError(f"the layer cache {wanted} cannot be made: {error.strerror}", advice=_ADVICE)
    else:
        if _is_open(wanted.stat()):
            # Whoever can write there could put anything into our sandboxes.
            raise SandboxError(f"others can write to the layer cache {wanted}", advice=_ADVICE)
        if directory_holds_writes(wanted, privileged=privileged):
            return Place(wanted)
        if not os.access(wanted, os.W_OK):
            failure = SandboxError(f"the layer cache {wanted} cannot be written to", advice=_ADVICE)
    unfit = f"layers cannot be built in {wanted}"
    spare = spare_layers()
    if _is_ours(spare) and directory_holds_writes(spare, privileged=privileged):
        return Place(spare, notes=(f"{unfit}: they are in {spare}",))
    if failure is not None:
        raise failure
    if privileged and _cover_with_memory(wanted):
        return Place(wanted, notes=(f"{unfit}, on this file system: they are in memory, give BF_CACHE_DIR a volume",))
    return Place(wanted, holds_writes=False)


def _make(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)


def _is_open(status: os.stat_result) -> bool:
    return status.st_uid != os.geteuid() or bool(status.st_mode & 0o022)


def _is_ours(path: Path) -> bool:
    """Make a directory where everybody may; what somebody else put there under its name, or a link, will not do."""
    try:
        _make(path)
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and not _is_open(status)


def _cover_with_memory(path: Path) -> bool:
    """Mount a tmpfs on `path` for as long as the container lives, shared by all its processes."""
    from filelock import FileLock

    with contextlib.suppress(OSError), FileLock(path.with_suffix(".lock")):
        # Another process may have done it meanwhile.
        if not directory_holds_writes(path, privileged=True):
            libc.mount("tmpfs", str(path), "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=700")
        return True
    return False
