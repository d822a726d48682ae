"""Locks between the processes of one user, such as the workers of a run."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

from pytest_benchflow.cache import cache_directory, locked_files
from pytest_benchflow.errors import SandboxError


@contextlib.asynccontextmanager
async def locked(*names: str) -> AsyncIterator[None]:
    """Hold the first free one of these locks; polling, so that the wait can be cancelled."""
    async with locked_files(*(_directory() / f"{_file_name(name)}.lock" for name in names)):
        yield


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
