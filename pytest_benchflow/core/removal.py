"""Remove directories, however deep, and whatever their modes deny: sandboxes write anything.

The standard library only: processes without the rest of the package use it too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterator

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | os.PathLike[str] | bytes) -> None:
    """Remove a directory with all in it, or a link to one; nothing happens if it is not there."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.islink(path):
            os.unlink(path)
            return
        os.chmod(path, 0o700)
        top = os.open(path, _DIRECTORY)
        names = (f".removed-{number}" for number in itertools.count())
        try:
            while entries := os.listdir(top):
                for entry in entries:
                    _remove(top, entry, names)
        finally:
            os.close(top)
        os.rmdir(path)


def _remove(top: int, entry: str, names: Iterator[str]) -> None:
    """Remove one entry; directories in it move up to `top`, for a tree can be deeper than any path is long."""
    if _unlink(entry, top):
        return
    inner = os.open(entry, _DIRECTORY, dir_fd=top)
    try:
        for name in os.listdir(inner):
            if not _unlink(name, inner):
                os.rename(name, next(names), src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(entry, dir_fd=top)


def _unlink(name: str, directory: int) -> bool:
    """Remove a file, or make a directory fit to be removed and return False."""
    try:
        os.unlink(name, dir_fd=directory)
    except (IsADirectoryError, PermissionError):  # the second is what macOS says
        if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise
        os.chmod(name, 0o700, dir_fd=directory)
        return False
    return True
