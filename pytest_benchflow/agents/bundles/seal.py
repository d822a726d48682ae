"""Finish a bundle: readable for everyone, named by its content, and later checked for damage."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .bundle import FACTS, KEY, Bundle

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """What a directory holds."""

    digest: str
    files: int
    size: int


def seal(top: Path) -> Content:
    """Open every file to all users, and return what is there."""
    digest, files, size = hashlib.sha256(), 0, 0
    seen: set[int] = set()
    for path, status in _walk(top):
        name, kind = str(path.relative_to(top)), stat.S_IFMT(status.st_mode)
        digest.update(f"{name}\0{kind}\0{status.st_mode & 0o100}\0".encode(errors="surrogateescape"))
        if kind == stat.S_IFLNK:
            digest.update(os.fsencode(os.readlink(path)))
            continue
        path.chmod(0o755 if kind == stat.S_IFDIR or status.st_mode & 0o100 else 0o644)
        if kind == stat.S_IFREG:
            files, size = files + 1, size + (0 if status.st_ino in seen else status.st_size)
            seen.add(status.st_ino)
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
    top.chmod(0o755)
    return Content(digest.hexdigest(), files, size)


def is_whole(bundle: Bundle) -> bool:
    """Say whether nothing of a bundle is missing; a program that was run may have added files."""
    files = size = 0
    seen: set[int] = set()
    todo = [str(bundle.path)]
    added = {os.path.join(todo[0], name) for name in (FACTS, KEY)}
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and entry.path not in added:
                    status = entry.stat(follow_symlinks=False)
                    files, size = files + 1, size + (0 if status.st_ino in seen else status.st_size)
                    seen.add(status.st_ino)
    programs = [bundle.path / "bin" / name for name in bundle.spec.programs]
    return files >= bundle.files and size >= bundle.size and all(os.access(path, os.X_OK) for path in programs)


def _walk(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(top) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        yield Path(entry.path), entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
