"""Where things that are dear to make are kept between runs, how processes share them, and files named everywhere."""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.process import start_time

if TYPE_CHECKING:
    from filelock import FileLock


_POLL_SEC = 0.05
_numbers = itertools.count(1)


def cache_directory() -> Path:
    """Return `$BF_CACHE_DIR`, else `pytest-benchflow` in the user's cache directory; it may not exist yet."""
    if chosen := os.environ.get("BF_CACHE_DIR"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base).absolute() / "pytest-benchflow"


def spare_layers() -> Path:
    """Return where the local sandbox keeps layers if the cache directory is on a file system that cannot hold them."""
    return Path(f"/var/tmp/pytest-benchflow-layers-{os.geteuid()}")  # noqa: S108 - checked before it is used


@contextlib.asynccontextmanager
async def locked_files(*files: Path) -> AsyncIterator[None]:
    """Hold the first free one of these lock files; polling, so that the wait can be cancelled."""
    import asyncio

    while (held := next(filter(None, map(_take, files)), None)) is None:  # noqa: ASYNC110 - other processes set no event
        await asyncio.sleep(_POLL_SEC)
    try:
        yield
    finally:
        held.release()


def _take(file: Path) -> FileLock | None:
    from filelock import FileLock, Timeout

    lock = FileLock(file, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock


def temporary_name() -> str:
    """Name a directory that is being filled, so that others can tell when its maker is gone."""
    pid = os.getpid()
    return f"tmp-{pid}-{start_time(pid)}-{next(_numbers)}"


def is_abandoned(name: str) -> bool:
    """Return whether a directory has a temporary name whose maker is gone."""
    word, _, rest = name.partition("-")
    pid, _, rest = rest.partition("-")
    return word == "tmp" and pid.isdigit() and start_time(pid) != rest.partition("-")[0]


def write_atomically(path: Path, text: str, *, errors: str = "strict") -> None:
    """Replace a file by one with this text, so that readers see the old or the new one whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", errors=errors)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


COMPOSE_FILE = "docker-compose.yaml"
_COPY = re.compile(r"^[ \t]*(?:COPY|ADD)[ \t]+(.+)$", re.IGNORECASE | re.MULTILINE)


def compose_file(directory: Path | None) -> Path | None:
    """Return the compose file of an environment, None if it is one container: a file the image gets is only data."""
    if directory is None or not (directory / COMPOSE_FILE).is_file() or is_copied(directory, COMPOSE_FILE):
        return None
    return directory / COMPOSE_FILE


def is_copied(directory: Path, name: str) -> bool:
    """Return whether the Dockerfile copies a compose file of its context, and by more than a `*` for everything."""
    try:
        text = (directory / "Dockerfile").read_text("utf-8", errors="replace")
    except OSError:
        return False
    for arguments in _COPY.findall(re.sub(r"\\[ \t]*\n", " ", text)):
        words = re.findall(r'[^\s"\[\],]+', arguments)
        sources = [word.removeprefix("./") for word in words[:-1] if not word.startswith("--")]
        if not any(word.startswith("--from") for word in words) and any(_names(word, name) for word in sources):
            return True
    return False


def _names(pattern: str, name: str) -> bool:
    return "compose" in pattern and fnmatch.fnmatchcase(name, pattern)
