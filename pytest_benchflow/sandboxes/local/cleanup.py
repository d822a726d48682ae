"""What runs have left on this machine's disk, and the layers of the local sandbox: find and remove them."""

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

from pytest_benchflow.core.files import cache_directory, is_abandoned, spare_layers, temporary_name
from pytest_benchflow.core.process import start_time
from pytest_benchflow.core.removal import remove_tree
from pytest_benchflow.sandboxes.base import Leftover
from pytest_benchflow.sandboxes.build_context import CONTEXT_PREFIX


class _OnDisk:
    has_runs = False

    async def __aenter__(self) -> Self:
        """Open nothing: it is a directory."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close nothing."""

    async def remove(self, leftovers: Sequence[Leftover]) -> list[Leftover]:
        """Remove directories, also where their modes deny it."""
        for item in leftovers:
            await asyncio.to_thread(_remove, Path(item.id))
        return [item for item in leftovers if not os.path.lexists(item.id)]


class LocalLeftovers(_OnDisk):
    """Half-built layers and half-installed agents in this user's cache, and copies of build contexts."""

    title = "local"
    is_cache = False

    async def find(self) -> list[Leftover]:
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
    is_cache = True

    def __init__(self, unused_for_sec: float) -> None:
        self._unused_for_sec = unused_for_sec

    async def find(self) -> list[Leftover]:
        """List what was last used long ago; what a sandbox stands on is in use."""
        return await asyncio.to_thread(self._find)

    def _find(self) -> list[Leftover]:
        oldest = time.time() - self._unused_for_sec
        names = (path for place in _layer_places() for path in place.glob("*") if not path.name.startswith("tmp-"))
        old = {path: path.lstat().st_mtime for path in names if _is_ours(path) and path.lstat().st_mtime <= oldest}
        used = _in_use({path.name for path in old})
        layers = [
            Leftover("layer", str(path), path.name, f"{_size(path) / 1e6:.0f} MB", changed, path.name not in used)
            for path, changed in old.items()
        ]
        return sorted(layers, key=lambda layer: layer.created)


def _layer_places() -> list[Path]:
    return [cache_directory() / "layers", *filter(_is_ours, [spare_layers()])]


def _is_ours(path: Path) -> bool:
    """Tell our own directories, where everybody can make some, from what others made: links above all."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _half_made(kind: str, path: Path) -> Leftover:
    return _leftover(kind, path, path.name.split("-")[1], gone=is_abandoned(path.name))


def _context(path: Path) -> Leftover:
    pid = path.name.removeprefix(CONTEXT_PREFIX).partition("-")[0]
    return _leftover("build context", path, pid, gone=not start_time(pid))


def _leftover(kind: str, path: Path, pid: str, *, gone: bool) -> Leftover:
    owner = f"of process {pid}, which {'is gone' if gone else 'is running'}"
    created = 0.0
    # Whoever builds there may have finished meanwhile.
    with contextlib.suppress(FileNotFoundError):
        created = path.stat().st_mtime
    return Leftover(kind, str(path), path.name, owner, created, gone)


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
