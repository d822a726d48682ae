"""Write a layer that shows a tool of the host where an image has it.

Files that are the caller's own are linked rather than copied: nothing in a sandbox can write to a layer's file.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pytest_benchflow.sandboxes.local.guest import hostview
from pytest_benchflow.sandboxes.local.guest.rootfs import WHITEOUT
from pytest_benchflow.sandboxes.local.toolchains import ToolFiles, Tree


def files_key(files: ToolFiles) -> list[object]:
    """Return what the layer of these files depends on: what is to be there, and when each part of it changed."""
    sources = [*(tree.source for tree in files.trees), *(wheel for wheel, _ in files.wheels)]
    return [repr(files), *(_changed(source) for source in sources)]


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def write_layer(files: ToolFiles, layer: Path) -> None:
    """Fill the empty directory of a layer."""
    places = _Places(layer)
    for tree in files.trees:
        _write_tree(tree, places.of(tree.target))
    for path, mode in files.directories:
        place = places.of(path)
        place.mkdir(exist_ok=True)
        place.chmod(mode)
    for wheel, directory in files.wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(places.of(directory))
    for path, target in files.links:
        place = places.of(path)
        if not os.path.lexists(place):
            place.symlink_to(target)
    for path, text, mode in files.texts:
        place = places.of(path)
        place.write_text(text)
        place.chmod(mode)
    for path in files.hidden:
        os.mknod(places.of(path), stat.S_IFCHR, WHITEOUT)


class _Places:
    """Finds the place of a path of the sandbox in a layer, which has a directory for each area of the host."""

    def __init__(self, layer: Path) -> None:
        self._layer = layer
        self._areas = sorted((area.path for area in hostview.detect().areas), key=len, reverse=True)

    def of(self, path: str) -> Path:
        """Return where a path is written, with the directories above it."""
        area = next((area for area in self._areas if f"{path}/".startswith(f"/{area}/")), "")
        place = self._layer / (area.replace("/", "-") or "root") / path.removeprefix(f"/{area}").lstrip("/")
        self._make(place.parent)
        return place

    def _make(self, directory: Path) -> None:
        if not directory.is_dir():
            self._make(directory.parent)
            directory.mkdir()
            directory.chmod(0o755)


def _write_tree(tree: Tree, target: Path) -> None:
    if not os.path.isdir(tree.source):
        _write_file(tree.source, target)
        return
    for path in _paths(tree.source, tree.left_out):
        source, place = f"{tree.source}/{path}", target / path
        if os.path.islink(source):
            place.symlink_to(os.readlink(source))
        elif os.path.isdir(source):
            place.mkdir(exist_ok=True, parents=True)
            place.chmod(0o755)
        elif edits := [edit for edit in tree.edits if fnmatch.fnmatchcase(path, edit[0])]:
            _write_edited(source, place, edits)
        else:
            _write_file(source, place)


def _paths(top: str, left_out: tuple[str, ...], below: str = "") -> Iterator[str]:
    """Yield every path below a directory, parents first."""
    yield below
    with os.scandir(f"{top}/{below}") as entries:
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in left_out):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _paths(top, left_out, path)
            else:
                yield path


def _write_file(source: str, target: Path) -> None:
    if os.path.islink(source):
        target.symlink_to(os.readlink(source))
        return
    if os.stat(source).st_uid == os.geteuid():
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)


def _write_edited(source: str, target: Path, edits: list[tuple[str, str, str]]) -> None:
    text = Path(source).read_text(errors="surrogateescape")
    for _, old, new in edits:
        text = text.replace(old, new)
    target.write_text(text, errors="surrogateescape")
