"""Copy a part of a host directory into a sandbox."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.errors import SandboxError

if TYPE_CHECKING:
    from .base import Service

_REMOVE_TIMEOUT_SEC = 60.0


async def upload_selected(sandbox: Service, source: Path, target: str, left_out: Sequence[str]) -> None:
    """Copy the content of a directory into `target`, without the relative paths that are to be left out."""
    await sandbox.upload_dir(source, target)
    if not left_out:
        return
    names = b"\0".join(map(os.fsencode, left_out))
    script = f"cd {shlex.quote(target)} && xargs -0 rm -rf --"
    done = await sandbox.exec(script, user=0, cwd="/", stdin=names, timeout_sec=_REMOVE_TIMEOUT_SEC)
    if done.return_code:
        raise SandboxError(f"could not leave files out of {target}: {done.stderr.strip()[:300]}")
