"""Make the host's directories writable in the sandbox of an ordinary user.

In a user namespace the host's root has no number, and what belongs to him cannot be changed even by the root inside.
A layer that repeats the directories as the caller's own cures that: an overlay takes a directory's owner from the
topmost layer that has it. Files stay shared with the host and can be replaced; those of /etc can also be edited.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from pathlib import Path

from .guest import hostview
from .layers import LayerStore

#: Deeper directories are rarely written to, and each one costs a block on disk.
_DEPTH = 6
_WHOLE = ("/etc", "/usr/local", "/var/lib/dpkg")
#: Files that are edited or locked in place rather than replaced.
_COPIED = ("/etc/", "/var/lib/dpkg/")
_NOT_COPIED = "/var/lib/dpkg/info/"
_MAX_FILE_BYTES = 4 << 20


async def ensure_mirror(store: LayerStore, name: str) -> None:
    """Build the layer `name` with the caller's own copy of the host's directories, unless it is there."""
    if store.has(name):
        return
    async with store.locked(name):
        if not store.has(name):
            async with store.building(name) as directory:
                await asyncio.to_thread(_mirror, store.path / directory)


def _mirror(target: Path) -> None:
    for area in hostview.look().seen_by(privileged=False):
        _copy(f"/{area.path}", str(target / area.key), depth=_DEPTH)


def _copy(source: str, target: str, depth: int) -> None:
    os.mkdir(target)
    with os.scandir(source) as entries:
        for entry in entries:
            # Gone meanwhile, or closed by something else than its mode: the sandbox does without.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                _copy_entry(entry, f"{target}/{entry.name}", depth)
    os.chmod(target, stat.S_IMODE(os.stat(source).st_mode) | 0o700)


def _copy_entry(entry: os.DirEntry[str], target: str, depth: int) -> None:
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        whole = any(entry.path == top or entry.path.startswith(f"{top}/") for top in _WHOLE)
        if status.st_mode & 0o005 == 0o005 and (depth > 1 or whole):
            _copy(entry.path, target, depth - 1)
    elif _is_edited(entry.path, status):
        shutil.copy(entry.path, target)


def _is_edited(path: str, status: os.stat_result) -> bool:
    readable = stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o004)
    wanted = path.startswith(_COPIED) and not path.startswith(_NOT_COPIED)
    return readable and wanted and status.st_size <= _MAX_FILE_BYTES
