"""Keep declared files of the sandbox and its services: copied out after the agent, and into a separate verifier's."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_benchflow.core.errors import BenchflowError
from pytest_benchflow.rollout.recorder import write_json
from pytest_benchflow.sandboxes import MAIN, empty_dirs_script, exec_checked, service_of

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox, Service
    from pytest_benchflow.tasks import Artifact


Kind = Literal["directory", "file"]
Status = Literal["ok", "empty", "failed", "skipped"]

_EXEC_TIMEOUT_SEC = 60.0
_COPY_TIMEOUT_SEC = 300.0


@dataclass(frozen=True, slots=True)
class ArtifactEntry:
    """One line of the manifest."""

    source: str
    destination: str
    type: Kind | None
    status: Status
    exclude: tuple[str, ...] = ()
    service: str = MAIN


async def copy_artifacts_out(
    sandbox: Sandbox,
    declared: Sequence[Artifact],
    into: Path,
    *,
    before_services: Callable[[], Awaitable[None]] | None = None,
) -> list[ArtifactEntry]:
    """Copy the artifacts out and write their manifest; one that is missing or fails is not an error.

    Those of main come first; then `before_services` is awaited, and then come those of other services.
    """
    entries: list[ArtifactEntry] = []

    async def copy_out(artifacts: Sequence[Artifact]) -> None:
        for artifact in artifacts:
            entries.append(await _copy_out(sandbox, artifact, into, entries))

    await copy_out([artifact for artifact in declared if artifact.service == MAIN])
    if before_services is not None:
        await before_services()
    await copy_out([artifact for artifact in declared if artifact.service != MAIN])
    _prune_empty(into)
    if any(entry.status == "ok" for entry in entries) or len(declared) > 1:
        into.mkdir(parents=True, exist_ok=True)
        write_json(into / "manifest.json", [asdict(entry) for entry in entries])
    return entries


async def copy_artifacts_in(sandbox: Sandbox, entries: Sequence[ArtifactEntry], directory: Path) -> None:
    """Copy artifacts into another sandbox, to the paths they came from; directories are emptied before."""
    for entry in entries:
        if entry.type == "directory" and entry.status in ("ok", "empty"):
            await _empty(sandbox, entry.source)
        if entry.status == "ok" and entry.type == "directory":
            await sandbox.upload_dir(directory / entry.destination, entry.source)
        elif entry.status == "ok":
            await sandbox.upload_file(directory / entry.destination, entry.source)


async def _copy_out(
    sandbox: Sandbox, artifact: Artifact, into: Path, entries: Sequence[ArtifactEntry]
) -> ArtifactEntry:
    """Copy one artifact, unless it overlaps with one that was copied already."""
    source = artifact.source if artifact.source.startswith("/") else f"{sandbox.workdir.rstrip('/')}/{artifact.source}"
    destination = artifact.destination or source.lstrip("/")
    kind: Kind | None = None
    status: Status = "skipped"
    if not any(_overlap(destination, other.destination) for other in entries if other.status != "skipped"):
        try:
            async with asyncio.timeout(_COPY_TIMEOUT_SEC):
                kind = await _fetch(service_of(sandbox, artifact.service), source, into / destination)
            status = "empty" if kind is None else "ok"
        except (OSError, BenchflowError):
            status = "failed"
        if kind == "directory":
            _drop_excluded(into / destination, artifact.exclude)
            status = "ok" if any((into / destination).iterdir()) else "empty"
    return ArtifactEntry(source, destination, kind, status, artifact.exclude, artifact.service)


async def _fetch(service: Service, source: str, target: Path) -> Kind | None:
    """Download a directory or file and return which it is; both are tried, since a service may have no shell to ask."""
    with suppress(FileNotFoundError):
        await service.download_dir(source, target)
        return "directory"
    with suppress(OSError):
        target.rmdir()
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        await service.download_file(source, target)
        return "file"
    return None


async def _empty(sandbox: Sandbox, directory: str) -> None:
    purpose = f"empty {directory} for its artifacts"
    await exec_checked(sandbox, empty_dirs_script(directory), purpose, timeout_sec=_EXEC_TIMEOUT_SEC)


def _prune_empty(directory: Path) -> None:
    for root, _, _ in os.walk(directory, topdown=False):
        with suppress(OSError):  # it is not empty
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
