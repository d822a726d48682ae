"""What the configuration of a rollout adds to a sandbox before any agent is in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.errors import BenchflowError, SandboxError, UsageError

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.sandboxes import Sandbox


async def put_uploads(sandbox: Sandbox, uploads: Mapping[str | Path, str]) -> None:
    """Copy host files and directories to where the configuration wants them."""
    for given, target in uploads.items():
        source = Path(given)
        if source.is_dir():
            await sandbox.upload_dir(source, target)
        elif source.is_file():
            await sandbox.upload_file(source, target)
        else:
            raise UsageError(f"uploads: {source} does not exist", advice="name a file or directory of this machine")


async def run_hooks(sandbox: Sandbox, config: RolloutConfig) -> None:
    """Await the hooks in order; one that fails fails the rollout."""
    for hook in config.pre_agent_hooks:
        try:
            await hook(sandbox)
        except BenchflowError:
            raise
        except Exception as error:
            name = getattr(hook, "__name__", type(hook).__name__)
            raise SandboxError(f"hook {name}: {type(error).__name__}: {error}", retryable=False) from error
