"""The cache of layers: directories named by what made them, each complete from the moment it exists."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_benchflow.cache import cache_directory
from pytest_benchflow.errors import SandboxError

_NAME_LENGTH = 24
_POLL_SEC = 0.05
_KEPT_SEC = 30 * 24 * 3600.0


def layer_name(key: str) -> str:
    """Return the directory of the layer with this key; short, since mount options hold many of them."""
    return key[:_NAME_LENGTH]


class LayerStore:
    """Layers on disk, shared by all processes of one user."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        self._swept = False

    @property
    def path(self) -> Path:
        """The directory that holds the layers, made on first use and closed to others."""
        path = (self._directory or cache_directory()) / "layers"
        advice = "set BF_CACHE_DIR to a directory of your own"
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            status = path.stat()
        except OSError as error:
            raise SandboxError(f"the layer cache {path} cannot be made: {error.strerror}", advice=advice) from None
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            # Whoever can write there could put anything into our sandboxes.
            raise SandboxError(f"others can write to the layer cache {path}", advice=advice)
        return path

    def has(self, name: str) -> bool:
        """Say whether a layer is there; asking counts as use."""
        try:
            os.utime(self.path / name)
        except FileNotFoundError:
            return False
        return True

    @contextlib.asynccontextmanager
    async def locked(self, name: str) -> AsyncIterator[None]:
        """Be the only builder of a layer on this host; the wait ends with the caller's own deadline."""
        lock = FileLock(self.path / f"{name}.lock", thread_local=False)
        while True:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                # Polling keeps the wait cancellable; a thread blocked on the lock would not be.
                await asyncio.sleep(_POLL_SEC)
            else:
                break
        try:
            yield
        finally:
            lock.release()

    @contextlib.asynccontextmanager
    async def building(self, name: str) -> AsyncIterator[str]:
        """Give a new directory to build in; it becomes the layer on success and vanishes otherwise."""
        if not self._swept:
            self._swept = True
            await asyncio.to_thread(self._sweep)
        temporary = self._temporary_name()
        path = self.path / temporary
        path.mkdir(mode=0o700)
        try:
            yield temporary
            await asyncio.to_thread(self._commit, path, name)
        finally:
            await asyncio.shield(asyncio.to_thread(_remove, path))

    def _commit(self, path: Path, name: str) -> None:
        _remove(path / ".work")
        for area in path.iterdir():
            # An area the step did not touch would only make every mount longer.
            with contextlib.suppress(OSError):
                area.rmdir()
        target = self.path / name
        if target.exists():
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
                    doomed = path.rename(self.path / self._temporary_name())
                    _remove(doomed)

    def _temporary_name(self) -> str:
        pid = os.getpid()
        return f"tmp-{pid}-{_start_time(pid)}-{next(self._numbers)}"


def _is_useless(path: Path) -> bool:
    if path.name.startswith("tmp-"):
        pid, started = path.name.split("-")[1:3]
        return _start_time(int(pid)) != started
    return path.stat().st_mtime < time.time() - _KEPT_SEC


def _start_time(pid: int) -> str:
    """Return when a process started, which tells it from a later one of the same number; "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _remove(path: Path) -> None:
    """Remove a tree, also where its directories deny it."""
    with contextlib.suppress(FileNotFoundError):
        path.chmod(0o700)
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _remove(Path(entry.path))
                else:
                    os.unlink(entry.path)
        path.rmdir()
