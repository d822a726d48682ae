"""A task's build context as a run wants it: with another base image, with files from a context root."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath

from pytest_benchflow.core.errors import BuildError
from pytest_benchflow.sandboxes import with_base, with_sources

_DEPS = "_deps"


def make_context(environment: Path, target: Path, *, base_image: str | None, root: Path | None) -> None:
    """Copy a build context to `target` and rewrite its Dockerfile; the task itself is never touched."""
    shutil.copytree(environment, target, symlinks=True)
    file = target / "Dockerfile"
    text = file.read_text("utf-8", errors="surrogateescape")
    if base_image is not None:
        text = with_base(text, base_image)
    if root is not None:
        text = with_sources(text, _Adopter(environment, target, root.resolve()).place)
    file.unlink()
    file.write_text(text, "utf-8", errors="surrogateescape")


class _Adopter:
    """Takes what a Dockerfile copies and its directory does not have from the context root."""

    def __init__(self, environment: Path, target: Path, root: Path) -> None:
        self._file = f"{environment.name}/Dockerfile"
        self._environment = environment
        self._root = root
        self._name = _DEPS
        while os.path.lexists(target / self._name):
            self._name += "_"
        self._deps = target / self._name
        self._ignore = target / ".dockerignore"

    def place(self, line: int, source: str) -> str | None:
        """Copy what a source names into the context and return its path there; None if it is to stay as it is."""
        pattern = PurePosixPath(source.lstrip("/"))
        if ".." in pattern.parts:
            raise self._error(line, source, f"leaves the context root {self._root}; write it relative to that")
        if not pattern.parts or _any(self._environment, pattern):
            return None
        found = sorted(self._root.glob(str(pattern)))
        for path in found:
            self._adopt(line, source, path)
        return f"{self._name}/{pattern}{'/' if source.endswith('/') else ''}" if found else None

    def _adopt(self, line: int, source: str, path: Path) -> None:
        for inside in (path, *(path.rglob("*") if path.is_dir() else ())):
            if (inside.is_symlink() or inside == path) and not inside.resolve().is_relative_to(self._root):
                raise self._error(line, source, f"{inside} is a link that leaves the context root {self._root}")
        self._open()
        copy = self._deps / path.relative_to(self._root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path.resolve(), copy, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(path, copy)

    def _open(self) -> None:
        """Make the directory; what the task ignores of its own files has nothing to say about these."""
        if not self._deps.exists():
            self._deps.mkdir()
            if self._ignore.is_file():
                self._ignore.write_text(f"{self._ignore.read_text()}\n!{self._name}\n")

    def _error(self, line: int, source: str, what: str) -> BuildError:
        return BuildError(f"{self._file}:{line}: {source}: {what}")


def _any(directory: Path, pattern: PurePosixPath) -> bool:
    return os.path.lexists(directory / pattern) or next(directory.glob(str(pattern)), None) is not None
