"""What every backend asks of the host directories that a sandbox is to show."""

from __future__ import annotations

from pathlib import PurePosixPath

from pytest_benchflow.errors import SandboxError

from .base import SandboxSpec


def check_mounts(spec: SandboxSpec) -> None:
    """Refuse what could not be mounted; a wrong path would otherwise show as an empty directory, or not at all."""
    for mount in spec.mounts:
        if not mount.source.is_dir():
            raise SandboxError(
                f"sandbox {spec.name} cannot show {mount.source} on {mount.target}: there is no such directory",
                retryable=False,
            )
        path = PurePosixPath(mount.target)
        if not path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
            raise SandboxError(
                f"sandbox {spec.name} cannot show {mount.source} on {mount.target!r}: give an absolute path",
                retryable=False,
            )
