"""Find out whether an overlay could keep its writes in a place, without mounting one: deletions are what it takes."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from pytest_benchflow.cache import temporary_name

from .guest import libc

_WHITEOUT = os.makedev(0, 0)


def memory_holds_writes(*, privileged: bool) -> bool:
    """Say whether tmpfs has the attributes that mark replaced directories; a user's are known to it since Linux 6.6."""
    with open(os.memfd_create("bf-probe", os.MFD_CLOEXEC)) as file:
        return _takes_attribute(file.fileno(), privileged=privileged)


def directory_holds_writes(directory: Path, *, privileged: bool) -> bool:
    """Say whether a file system has attributes and whiteouts: not NFS, not FUSE, not another overlay."""
    file, moved, whiteout = (directory / f"{temporary_name()}-probe{number}" for number in range(3))
    try:
        file.touch(mode=0o600)
        os.mknod(whiteout, stat.S_IFCHR, _WHITEOUT)
        libc.rename_leaving_whiteout(str(file), str(moved))
        return _takes_attribute(moved, privileged=privileged)
    except OSError:
        return False
    finally:
        for path in (file, moved, whiteout):
            # What could not be made cannot be removed, and a read-only file system does not say that it is missing.
            with contextlib.suppress(OSError):
                path.unlink()


def _takes_attribute(file: int | Path, *, privileged: bool) -> bool:
    try:
        os.setxattr(file, f"{'trusted' if privileged else 'user'}.overlay.probe", b"y")
    except OSError:
        return False
    return True
