"""What runs have left behind, in every kind of sandbox and on this machine's disk: find it and remove it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from pytest_benchflow.core.files import cache_directory, is_abandoned, spare_layers, start_time, temporary_name
from pytest_benchflow.core.removal import remove_tree


class _OnDisk:
    async def __aenter__(self) -> Self:
        """Open nothing: it is a directory."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of nothing."""

    async def remove(self, traces: Sequence[Trace]) -> list[Trace]:
        """Remove directories, also where they deny it."""
        for trace in traces:
            await asyncio.to_thread(_remove, Path(trace.id))
        return [trace for trace in traces if not os.path.lexists(trace.id)]


class LocalLeftovers(_OnDisk):
    """Half-built layers and half-installed agents in this user's cache, and copies of build contexts."""

    title = "local"

    async def find(self) -> list[Trace]:
        """List the directories; one is abandoned when the process that builds there is gone."""
        cache = cache_directory()
        builds = sorted(path for place in _layer_places() for path in place.glob("tmp-*-*-*"))
        agents = sorted([*(cache / "agents").glob("tmp-*-*-*"), *(cache / "agents" / "runtimes").glob("tmp-*-*-*")])
        contexts = sorted(Path(tempfile.gettempdir()).glob(f"{CONTEXT_PREFIX}*-*"))
        return [
            *(_half_made("half-built layer", path) for path in builds),
            *(_half_made("half-installed agent", path) for path in agents),
            *(_context(path) for path in contexts if _is_ours(path)),
        ]


class LocalLayers(_OnDisk):
    """Layers that tasks were built into; the next run that needs one builds it again."""

    title = "local layers"

    def __init__(self, max_age_sec: float) -> None:
        self._max_age_sec = max_age_sec

    async def find(self) -> list[Trace]:
        """List what was last used long ago; what a sandbox stands on is in use."""
        return await asyncio.to_thread(self._find)

    def _find(self) -> list[Trace]:
        oldest = time.time() - self._max_age_sec
        names = (path for place in _layer_places() for path in place.glob("*") if not path.name.startswith("tmp-"))
        old = {path: path.lstat().st_mtime for path in names if _is_ours(path) and path.lstat().st_mtime <= oldest}
        used = _in_use({path.name for path in old})
        traces = [
            Trace("layer", str(path), path.name, f"{_size(path) / 1e6:.0f} MB", changed, path.name not in used)
            for path, changed in old.items()
        ]
        return sorted(traces, key=lambda trace: trace.created)


def _layer_places() -> list[Path]:
    return [cache_directory() / "layers", *filter(_is_ours, [spare_layers()])]


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


def _in_use(names: Iterable[str]) -> set[str]:
    """Return the layers that sandboxes on this machine stand on: their mounts name them."""
    mounts = "\n".join(_mounts())
    return {name for name in names if f"{name}/" in mounts}


def _mounts() -> Iterator[str]:
    seen: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (process / "mountinfo").read_text(errors="replace")
            if text not in seen:
                seen.add(text)
                yield text


def _size(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.parent in _layer_places() and not path.name.startswith("tmp-"):
            # Whoever looks for the layer meanwhile finds it whole or not at all.
            path = path.rename(path.with_name(temporary_name()))
        remove_tree(path)


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
    from pytest_benchflow.sandboxes.docker.cleanup import DockerLeftovers

    return DockerLeftovers()


def docker_images(max_age_sec: float) -> Leftovers:
    """Return the images in the Docker daemon that tasks were built into, as far as they are older than this."""
    from pytest_benchflow.sandboxes.docker.cleanup import DockerImages

    return DockerImages(max_age_sec)


def local_leftovers() -> Leftovers:
    """Return what is on this machine's disk: half-built layers, half-installed agents, copies of build contexts."""

    return LocalLeftovers()


def local_layers(max_age_sec: float) -> Leftovers:
    """Return the layers that the local sandbox has built tasks into, as far as nobody used them for this long."""

    return LocalLayers(max_age_sec)
