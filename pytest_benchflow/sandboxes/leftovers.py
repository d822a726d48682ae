"""What runs have left in every kind of sandbox, seen alike: find it, tell whose it is, remove it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from pytest_benchflow.cache import cache_directory, is_abandoned, spare_layers, start_time

#: Temporary directories with the build contexts of a run; the number of its process follows.
CONTEXT_PREFIX = "bf-context-"


@dataclass(frozen=True, slots=True)
class Trace:
    """One thing that a run has made and that outlives a process."""

    kind: str
    id: str
    name: str
    owner: str
    """Whose it is, for people."""
    created: float
    """Seconds since 1970; 0 if nobody knows."""
    abandoned: bool
    """Whether nobody needs it any more."""
    run: str | None = None


class Leftovers(Protocol):
    """One place where things may be left; open while the context lasts."""

    @property
    def title(self) -> str:
        """How people call the place."""

    async def __aenter__(self) -> Self:
        """Open the place; SandboxError if it cannot be asked."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it."""

    async def find(self) -> list[Trace]:
        """List everything of ours that is there."""

    async def remove(self, traces: Sequence[Trace]) -> list[Trace]:
        """Remove these and return what is gone."""


def docker_leftovers() -> Leftovers:
    """Return what is in the Docker daemon: containers, networks, volumes."""
    from .docker.traces import DockerLeftovers

    return DockerLeftovers()


def docker_images(max_age_sec: float) -> Leftovers:
    """Return the images in the Docker daemon that tasks were built into, as far as they are older than this."""
    from .docker.traces import DockerImages

    return DockerImages(max_age_sec)


def local_leftovers() -> Leftovers:
    """Return what is on this machine's disk: half-built layers, half-installed agents, copies of build contexts."""
    return LocalLeftovers()


class LocalLeftovers:
    """Half-built layers and half-installed agents in this user's cache, and copies of build contexts."""

    title = "local"

    async def __aenter__(self) -> Self:
        """Open nothing: it is a directory."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of nothing."""

    async def find(self) -> list[Trace]:
        """List the directories; one is abandoned when the process that builds there is gone."""
        cache = cache_directory()
        places = [cache / "layers", *filter(_is_ours, [spare_layers()])]
        builds = sorted(path for place in places for path in place.glob("tmp-*-*-*"))
        agents = sorted([*(cache / "agents").glob("tmp-*-*-*"), *(cache / "agents" / "runtimes").glob("tmp-*-*-*")])
        contexts = sorted(Path(tempfile.gettempdir()).glob(f"{CONTEXT_PREFIX}*-*"))
        return [
            *(_half_made("half-built layer", path) for path in builds),
            *(_half_made("half-installed agent", path) for path in agents),
            *(_context(path) for path in contexts if _is_ours(path)),
        ]

    async def remove(self, traces: Sequence[Trace]) -> list[Trace]:
        """Remove directories, also where they deny it."""
        for trace in traces:
            await asyncio.to_thread(_remove_tree, Path(trace.id))
        return [trace for trace in traces if not os.path.lexists(trace.id)]


def _is_ours(path: Path) -> bool:
    """Tell our own directories, where everybody can make some, from what others made: links above all."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _half_made(kind: str, path: Path) -> Trace:
    return _trace(kind, path, path.name.split("-")[1], gone=is_abandoned(path.name))


def _context(path: Path) -> Trace:
    pid = path.name.removeprefix(CONTEXT_PREFIX).partition("-")[0]
    return _trace("build context", path, pid, gone=not start_time(pid))


def _trace(kind: str, path: Path, pid: str, *, gone: bool) -> Trace:
    owner = f"of process {pid}, which {'is gone' if gone else 'is running'}"
    created = 0.0
    # Whoever builds there may have finished meanwhile.
    with contextlib.suppress(FileNotFoundError):
        created = path.stat().st_mtime
    return Trace(kind, str(path), path.name, owner, created, gone)


def _remove_tree(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.chmod(0o700)
        # From the top down: each directory is opened before it is walked into.
        for folder, names, _ in os.walk(path):
            for name in names:
                if not os.path.islink(inner := os.path.join(folder, name)):
                    os.chmod(inner, 0o700)
    shutil.rmtree(path, ignore_errors=True)
