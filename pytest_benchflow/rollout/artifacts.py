"""Keep files of the sandbox: the agent's logs, and what a task declares, which a separate verifier gets too.

All of it is an agent's. It never takes the place of what the harness wrote, and no more of it is kept than people read.
"""

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

from pytest_benchflow.core.capture import omission
from pytest_benchflow.core.errors import BenchflowError
from pytest_benchflow.core.text import one_line
from pytest_benchflow.rollout.recorder import write_json
from pytest_benchflow.sandboxes import MAIN, empty_dirs_script, exec_checked, service_of

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox, Service
    from pytest_benchflow.tasks import Artifact


Kind = Literal["directory", "file"]
Status = Literal["ok", "empty", "failed", "skipped"]

_EXEC_TIMEOUT_SEC = 60.0
_COPY_TIMEOUT_SEC = 300.0


AGENT_LOGS = "/logs/agent"
EXIT_CODE = "exit-code.txt"
#: What the harness itself writes beside the agent's logs, also where it had nothing to write this time.
_OWN_LOGS = (EXIT_CODE, "install-stdout.txt", "install-*-stdout.txt")


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How much of an agent's logs is kept."""

    files: int = 10_000
    file_bytes: int = 64 << 20
    total_bytes: int = 512 << 20


@dataclass(frozen=True, slots=True)
class CopiedLogs:
    """What became of an agent's logs."""

    refused: tuple[str, ...] = ()
    """Names of the harness's own files that the agent had files for; those are kept as `sandbox-NAME`."""
    n_dropped: int = 0
    """Files that were too many or too much."""


async def copy_logs_out(sandbox: Sandbox, into: Path, limits: LogLimits = LogLimits()) -> CopiedLogs:
    """Copy the agent's logs to where the harness's are; of a copy that fails, what came is kept."""
    scratch = into.with_name(f".{into.name}-copy")
    await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    try:
        try:
            await sandbox.download_dir(AGENT_LOGS, scratch)
        except BenchflowError:
            await asyncio.to_thread(_merge, scratch, into, limits)
            raise
        return await asyncio.to_thread(_merge, scratch, into, limits)
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)


def _merge(source: Path, into: Path, limits: LogLimits) -> CopiedLogs:
    """Move what `source` holds below `into`, where nothing is replaced; what has a name of ours gets another."""
    if not source.is_dir():
        return CopiedLogs()
    n_dropped = _bound(source, limits)
    into.mkdir(parents=True, exist_ok=True)
    refused = []
    for path in sorted(source.iterdir()):
        target = into / path.name
        if os.path.lexists(target) or any(fnmatch(path.name, pattern) for pattern in _OWN_LOGS):
            refused.append(path.name)
            target = into / f"sandbox-{path.name}"
        if not os.path.lexists(target):
            path.replace(target)
    return CopiedLogs(tuple(refused), n_dropped)


def _bound(directory: Path, limits: LogLimits) -> int:
    """Cut files that are too long and remove those that are too many; return how many of either there were."""
    n_files = total = n_dropped = 0
    for root, folders, files in os.walk(directory):
        n_files += len(folders)
        if n_files > limits.files:
            n_dropped += len(folders)
            for name in folders:
                shutil.rmtree(Path(root, name))
            folders.clear()
        folders.sort()
        for name in sorted(files):
            path, n_files = Path(root, name), n_files + 1
            size = path.lstat().st_size
            total += min(size, limits.file_bytes)
            if n_files > limits.files or total > limits.total_bytes:
                path.unlink()
            elif size > limits.file_bytes and not path.is_symlink():
                with path.open("r+b") as file:
                    file.truncate(limits.file_bytes)
                    file.seek(0, os.SEEK_END)
                    file.write(omission(size - limits.file_bytes).encode())
            else:
                continue
            n_dropped += 1
    return n_dropped


@dataclass(frozen=True, slots=True)
class ArtifactEntry:
    """One line of the manifest."""

    source: str
    destination: str
    type: Kind | None
    status: Status
    exclude: tuple[str, ...] = ()
    service: str = MAIN
    reason: str | None = None
    """Why it failed."""


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
    reason: str | None = None
    if not any(_overlap(destination, other.destination) for other in entries if other.status != "skipped"):
        try:
            async with asyncio.timeout(_COPY_TIMEOUT_SEC):
                kind = await _fetch(service_of(sandbox, artifact.service), source, into / destination)
            status = "empty" if kind is None else "ok"
        except (OSError, BenchflowError) as error:
            status, reason = "failed", one_line(error.message if isinstance(error, BenchflowError) else str(error), 200)
            # A part would look like the whole to a verifier, and a flood should not stay on the disk.
            await asyncio.to_thread(_remove, into / destination)
        if kind == "directory":
            _drop_excluded(into / destination, artifact.exclude)
            status = "ok" if any((into / destination).iterdir()) else "empty"
    return ArtifactEntry(source, destination, kind, status, artifact.exclude, artifact.service, reason)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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
