"""Keep declared files of the sandbox: copied out after the agent, and into a separate verifier's sandbox."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_benchflow.errors import BenchflowError
from pytest_benchflow.rollout.store import write_json

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.tasks import Artifact

_KINDS = {"d": "directory", "f": "file", "-": None}


@dataclass(frozen=True, slots=True)
class Kept:
    """One line of the manifest."""

    source: str
    destination: str
    type: str | None
    status: Literal["ok", "empty", "failed", "skipped"]
    exclude: tuple[str, ...] = ()
    service: str = "main"


async def keep_artifacts(sandbox: Sandbox, declared: Sequence[Artifact], into: Path) -> list[Kept]:
    """Copy the artifacts out and write their manifest; one that is missing or fails is recorded, never fatal."""
    wanted = _wanted(declared, sandbox.workdir)
    kinds = await _kinds_of(sandbox, [source for source, _, _ in wanted])
    kept: list[Kept] = []
    for (source, destination, exclude), kind in zip(wanted, kinds, strict=True):
        if any(_overlap(destination, other.destination) for other in kept if other.status != "skipped"):
            kept.append(Kept(source, destination, kind, "skipped", exclude))
        else:
            status = await _copy(sandbox, source, kind, into / destination, exclude)
            kept.append(Kept(source, destination, kind, status, exclude))
    _prune_empty(into)
    if any(entry.status == "ok" for entry in kept) or len(declared) > 1:
        into.mkdir(parents=True, exist_ok=True)
        write_json(into / "manifest.json", [asdict(entry) for entry in kept])
    return kept


async def place_artifacts(sandbox: Sandbox, kept: Sequence[Kept], held_in: Path) -> None:
    """Put artifacts at the paths they came from, in another sandbox."""
    for entry in kept:
        if entry.status != "ok":
            continue
        if entry.type == "directory":
            await sandbox.upload_dir(held_in / entry.destination, entry.source)
        else:
            await sandbox.upload_file(held_in / entry.destination, entry.source)


def _wanted(declared: Sequence[Artifact], workdir: str) -> list[tuple[str, str, tuple[str, ...]]]:
    wanted: list[tuple[str, str, tuple[str, ...]]] = []
    for artifact in declared:
        source = artifact.source if artifact.source.startswith("/") else f"{workdir.rstrip('/')}/{artifact.source}"
        wanted.append((source, artifact.destination or source.lstrip("/"), artifact.exclude))
    return wanted


async def _kinds_of(sandbox: Sandbox, sources: Sequence[str]) -> list[str | None]:
    script = 'for p; do if [ -d "$p" ]; then echo d; elif [ -f "$p" ]; then echo f; else echo -; fi; done'
    quoted = " ".join(shlex.quote(source) for source in sources)
    done = await sandbox.exec(f"set -- {quoted}; {script}", user=0, timeout_sec=60)
    return [_KINDS.get(line) for line in done.stdout.split()]


async def _copy(
    sandbox: Sandbox, source: str, kind: str | None, target: Path, exclude: Sequence[str]
) -> Literal["ok", "empty", "failed", "skipped"]:
    if kind is None:
        return "empty"
    try:
        if kind == "file":
            target.parent.mkdir(parents=True, exist_ok=True)
            await sandbox.download_file(source, target)
            return "ok"
        await sandbox.download_dir(source, target)
    except (OSError, BenchflowError):
        return "failed"
    _drop_excluded(target, exclude)
    return "ok" if any(target.iterdir()) else "empty"


def _prune_empty(directory: Path) -> None:
    for root, _, _ in os.walk(directory, topdown=False):
        with suppress(OSError):  # what holds something stays
            os.rmdir(root)


def _drop_excluded(directory: Path, patterns: Sequence[str]) -> None:
    for path in sorted(directory.rglob("*"), reverse=True) if patterns else ():
        relative = path.relative_to(directory).as_posix()
        if any(fnmatch(relative, pattern) or fnmatch(path.name, pattern) for pattern in patterns):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _overlap(one: str, other: str) -> bool:
    a, b = Path(one).parts, Path(other).parts
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]
