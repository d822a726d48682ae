"""The cache of layers: directories named by what made them, each complete from the moment it exists."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from functools import cached_property
from pathlib import Path

from pytest_benchflow.cache import cache_directory, is_abandoned, locked_files, temporary_name
from pytest_benchflow.removal import remove_tree

from .place import Place, choose

_NAME_LENGTH = 24
_KEPT_SEC = 30 * 24 * 3600.0


def layer_name(key: str) -> str:
    """Return the directory of the layer with this key; short, since mount options hold many of them."""
    return key[:_NAME_LENGTH]


class LayerStore:
    """Layers on disk, shared by all processes of one user."""

    def __init__(self, *, privileged: bool) -> None:
        self._privileged = privileged
        self._swept = False

    @cached_property
    def place(self) -> Place:
        """The directory that holds the layers, made on first use and closed to others."""
        return choose(cache_directory() / "layers", privileged=self._privileged)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.place.path

    def has(self, name: str) -> bool:
        """Say whether a layer is there; asking counts as use."""
        try:
            # The slash: what is no directory is no layer.
            os.utime(f"{self.path / name}/")
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    @contextlib.asynccontextmanager
    async def locked(self, name: str) -> AsyncIterator[None]:
        """Be the only builder of a layer on this host; the wait ends with the caller's own deadline."""
        async with locked_files(self.path / f"{name}.lock"):
            yield

    async def reserve(self) -> str:
        """Name a new directory of this process, once what others have left is gone."""
        if not self._swept:
            self._swept = True
            await asyncio.to_thread(self._sweep)
        return temporary_name()

    @contextlib.asynccontextmanager
    async def building(self, name: str) -> AsyncIterator[str]:
        """Give a new directory to build in; it becomes the layer on success and vanishes otherwise."""
        temporary = await self.reserve()
        path = self.path / temporary
        path.mkdir(mode=0o700)
        try:
            yield temporary
            await asyncio.to_thread(self._commit, path, name)
        finally:
            await asyncio.shield(asyncio.to_thread(remove_tree, path))

    def _commit(self, path: Path, name: str) -> None:
        remove_tree(path / ".work")
        for area in path.iterdir():
            # An area the step did not touch would only make every mount longer.
            with contextlib.suppress(OSError):
                area.rmdir()
        target = self.path / name
        if os.path.lexists(target):
            # Sandboxes may still stand on the old one: it goes when this process is gone.
            target.rename(self.path / f"{path.name}-replaced")
        path.rename(target)

    def _sweep(self) -> None:
        """Remove what builders that are gone have left, and layers that nobody has used for long."""
        for path in self.path.iterdir():
            # Another process may be sweeping too.
            with contextlib.suppress(FileNotFoundError):
                if path.is_dir() and _is_useless(path):
                    # Renamed first: whoever looks for it meanwhile finds it whole or not at all.
                    doomed = path.rename(self.path / temporary_name())
                    remove_tree(doomed)


def _is_useless(path: Path) -> bool:
    if path.name.startswith("tmp-"):
        return is_abandoned(path.name)
    return path.stat().st_mtime < time.time() - _KEPT_SEC
