"""The workspace that an agent left, kept as an archive in the rollout's directory, and put into another sandbox.

What comes out of a sandbox is unpacked by the rules of `sandboxes/archive.py` first, and masked like everything else
that is kept: the archive is written from files of ours, and can be read like them.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError, SandboxError
from pytest_benchflow.sandboxes import ArchiveLimits, empty_dirs_script, exec_checked, pack_dir, unpack_dir

if TYPE_CHECKING:
    from pytest_benchflow.core.secrets import Redactor
    from pytest_benchflow.sandboxes import Sandbox

WORKSPACE = "workspace.tar.gz"
#: A workspace is source code and what was built of it; more is an agent's mistake, or its attack on this disk.
LIMITS = ArchiveLimits(total_bytes=1 << 30, members=100_000)
_COPY_TIMEOUT_SEC = 600.0
_EXEC_TIMEOUT_SEC = 120.0


async def save_workspace(sandbox: Sandbox, into: Path, redactor: Redactor) -> str | None:
    """Keep the workspace as an archive in `into`; return what is to be known of it, such as why it is not there."""
    into.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".workspace-", dir=into) as scratch:
            async with asyncio.timeout(_COPY_TIMEOUT_SEC):
                await sandbox.download_dir(sandbox.workdir, Path(scratch) / "files")
            return await asyncio.to_thread(_pack, Path(scratch), into / WORKSPACE, redactor)
    except TimeoutError:
        return f"the workspace could not be saved within {_COPY_TIMEOUT_SEC:g} s"
    except (BenchflowError, OSError) as error:
        return f"the workspace could not be saved: {error}"


def _pack(scratch: Path, archive: Path, redactor: Redactor) -> str | None:
    files = scratch / "files"
    _check_size(files)
    masked = redactor.scrub(files)
    draft = scratch / "draft"
    with draft.open("wb") as target, gzip.GzipFile(fileobj=target, mode="wb", compresslevel=1, mtime=0) as stream:
        pack_dir(files, stream)  # type: ignore[arg-type]
    os.replace(draft, archive)
    return f"a secret was masked in {len(masked)} files of the saved workspace" if masked else None


def _check_size(files: Path) -> None:
    total = sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(files) for name in names)
    if total > LIMITS.total_bytes:
        raise SandboxError(f"it has {total >> 20} MB, more than {LIMITS.total_bytes >> 20} MB", retryable=False)


async def restore_workspace(sandbox: Sandbox, archive: Path) -> None:
    """Replace the workspace of a sandbox by a saved one; its files belong to root until somebody gives them away."""
    with tempfile.TemporaryDirectory(prefix="bf-workspace-") as scratch:
        files = Path(scratch) / "files"
        await asyncio.to_thread(_unpack, archive, files)
        work = shlex.quote(sandbox.workdir)
        script = f"mkdir -p {work} && {empty_dirs_script(sandbox.workdir)}"
        await exec_checked(sandbox, script, "empty the workspace", cwd="/", timeout_sec=_EXEC_TIMEOUT_SEC)
        async with asyncio.timeout(_COPY_TIMEOUT_SEC):
            await sandbox.upload_dir(files, sandbox.workdir)


def _unpack(archive: Path, files: Path) -> None:
    """Unpack by the same rules as what comes from a sandbox: the file may have been changed since."""
    try:
        with gzip.open(archive, "rb") as stream:
            unpack_dir(stream, files, LIMITS)  # type: ignore[arg-type]
    except (EOFError, gzip.BadGzipFile) as error:
        raise SandboxError(f"{archive} cannot be read: {error}", retryable=False) from None


def copy_artifacts(source: Path, target: Path) -> None:
    """Copy the artifacts of an earlier verification, if there are any; links stay links."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
