"""Locks between the processes of one user, such as the workers of a run."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_benchflow.cache import cache_directory
from pytest_benchflow.errors import SandboxError

_POLL_SEC = 0.05


@contextlib.asynccontextmanager
async def locked(*names: str) -> AsyncIterator[None]:
    """Hold the first free one of these locks; polling, so that the wait can be cancelled."""
    locks = [FileLock(_directory() / f"{_file_name(name)}.lock", thread_local=False) for name in names]
    while (held := next(filter(_try, locks), None)) is None:  # noqa: ASYNC110 - other processes set no event here
        await asyncio.sleep(_POLL_SEC)
    try:
        yield
    finally:
        held.release()


def _try(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True


def _file_name(name: str) -> str:
    """Return a name that any file system takes."""
    readable = re.sub("[^A-Za-z0-9_.-]+", "-", name)[:40]
    return readable if readable == name else f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _directory() -> Path:
    path = cache_directory() / "docker"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SandboxError(
            f"the directory {path} cannot be made: {error.strerror}",
            advice="set BF_CACHE_DIR to a directory you can write",
        ) from None
    return path
