"""What differs between a sandbox and its image, and the image's own files put back: read from the overlays' layers.

No program of the sandbox takes part, for an agent that was root may have replaced any of them.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Collection, Iterator
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO

from pytest_benchflow.sandboxes.base import FileChange

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.local.machine import MachineConfig

_ROOT = "root"
_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")
_MAX_FILE_BYTES = 256 << 20
#: What the sandbox has of its own, in a layer that only it sees.
_OWN = frozenset(
    f"/etc/{name}" for name in ("hostname", "hosts", "resolv.conf", "passwd", "group", "shadow", "gshadow")
)


class Image:
    """The layers below what a sandbox writes."""

    def __init__(self, config: MachineConfig) -> None:
        self._areas = _areas(privileged=config.privileged)
        layers = [*config.layers, *([config.mirror] if config.mirror else [])]
        self._layers = [f"{config.layers_dir}/{layer}" for layer in layers]

    def place(self, key: str) -> str | None:
        """Return the path in the sandbox of what an overlay shows, "" for the root; None for what is no overlay."""
        return "" if key == _ROOT else self._areas.get(key)

    def find(self, path: str) -> str | None:
        """Return where on the host the image's own file or directory of a path is, None if it has none."""
        key, base = self._area(path)
        inside = path.removeprefix(base)
        for layer in (*(f"{layer}/{key}" for layer in self._layers), *([base] if base else [])):
            candidate = f"{layer}{inside}"
            if os.path.lexists(candidate):
                return None if _is_whiteout(candidate) else candidate
            if _is_hidden(layer, inside):
                return None
        return _in_skeleton(path.lstrip("/")) if key == _ROOT else None

    def _area(self, path: str) -> tuple[str, str]:
        """Return the key of the overlay that shows a path, and where that is; "" for the root."""
        areas = ((key, top) for key, top in self._areas.items() if path == top or path.startswith(f"{top}/"))
        return next(areas, (_ROOT, ""))

    def changes(self, written: str) -> list[FileChange]:
        """Return what differs from the image in a directory of all that was written."""
        return [
            change
            for key in sorted(os.listdir(written))
            if (top := self.place(key)) is not None
            for change in self._changes(f"{written}/{key}", top)
        ]

    def _changes(self, directory: str, path: str) -> Iterator[FileChange]:
        # No recursion, and no look at the image below what it does not have: an agent decides how deep directories are.
        left = [(directory, path, False)]
        while left:
            directory, path, is_new = left.pop()
            try:
                entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                inside = f"{path}/{entry.name}"
                own = None if is_new else self.find(inside)
                if _is_whiteout(entry.path):
                    if own is not None:
                        yield FileChange(inside, "deleted")
                elif entry.is_dir(follow_symlinks=False):
                    if own is None or not os.path.isdir(own) or os.path.islink(own):
                        yield FileChange(inside, "changed" if own else "added")
                    elif _is_opaque(entry.path):
                        yield FileChange(inside, "changed")
                    left.append((entry.path, inside, own is None))
                else:
                    yield FileChange(inside, "added" if own is None else "changed")

    def _all_below(self, path: str) -> Iterator[str]:
        """Yield a file, or all files of a directory, whichever layers they are in."""
        own = self.find(path)
        if own is None or os.path.islink(own) or not os.path.isdir(own):
            yield path
            return
        key, base = self._area(path)
        inside = path.removeprefix(base)
        names: set[str] = set()
        for layer in (*(f"{layer}/{key}" for layer in self._layers), *([base] if base else [])):
            if os.path.isdir(f"{layer}{inside}"):
                names |= {*os.listdir(f"{layer}{inside}")}
        for name in names:
            if self.find(f"{path}/{name}") is not None:
                yield from self._all_below(f"{path}/{name}")

    def pack(self, paths: Collection[str], stream: BinaryIO) -> None:
        """Write an archive of the image's own files; one that it does not have is empty."""
        with tarfile.open(fileobj=stream, mode="w|") as archive:
            # What stands in the place of a directory has to go before its files come.
            for path in sorted({*paths}):
                if (own := self.find(path)) is not None and os.path.isdir(own) and not os.path.islink(own):
                    archive.addfile(archive.gettarinfo(own, path.lstrip("/")))
            for path in sorted(chain.from_iterable(map(self._all_below, {*paths} - _OWN))):
                own = self.find(path)
                info = tarfile.TarInfo(path.lstrip("/"))
                info.mode = 0o644
                if own is None or not _is_file(own):
                    archive.addfile(info, io.BytesIO())
                    continue
                info = archive.gettarinfo(own, path.lstrip("/"))
                info.type = tarfile.REGTYPE if info.islnk() else info.type
                if info.isreg():
                    info.size = os.lstat(own).st_size
                    with open(own, "rb") as file:
                        archive.addfile(info, file)
                else:
                    archive.addfile(info)


@cache
def _areas(*, privileged: bool) -> dict[str, str]:
    from pytest_benchflow.sandboxes.local.guest import hostview

    return {area.key: f"/{area.path}" for area in hostview.detect().seen_by(privileged=privileged)}


def _in_skeleton(path: str) -> str | None:
    """Return something of the host that is like what every sandbox begins with."""
    from pytest_benchflow.sandboxes.local.guest import rootfs

    if path in rootfs.SKELETON or path in _areas(privileged=True).values():
        return "/"
    directory, _, name = path.rpartition("/")
    if directory == "root" and name in rootfs.HOME_FILES:
        return next(filter(os.path.isfile, (rootfs.HOME_FILES[name], f"/etc/skel/{name}")), None)
    return None


def _is_file(path: str) -> bool:
    status = os.lstat(path)
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_FILE_BYTES)


def _is_hidden(layer: str, inside: str) -> bool:
    """Return whether a directory above a path is hidden or replaced in a layer."""
    parent = os.path.dirname(inside)
    while parent not in ("", "/"):
        candidate = f"{layer}{parent}"
        if os.path.lexists(candidate):
            return _is_whiteout(candidate) or _is_opaque(candidate) or not os.path.isdir(candidate)
        parent = os.path.dirname(parent)
    return False


def _is_whiteout(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _is_opaque(path: str) -> bool:
    for name in _OPAQUE:
        try:
            if os.getxattr(path, name, follow_symlinks=False) == b"y":
                return True
        except OSError:
            continue
    return False
