"""What runs have left on this machine's disk: half-made things, and the layers of the local sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pytest_benchflow.cache import cache_directory, is_abandoned, spare_layers, start_time, temporary_name
from pytest_benchflow.removal import remove_tree

from .leftovers import CONTEXT_PREFIX, Trace


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
