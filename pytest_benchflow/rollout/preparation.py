"""What the configuration of a rollout adds to a sandbox before any agent is in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.errors import BenchflowError, SandboxError, UsageError
from pytest_benchflow.sandboxes import service_of
from pytest_benchflow.tasks import service_mentions

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.tasks import Task


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


def check_services(sandbox: Sandbox, task: Task) -> None:
    """Refuse services that a started sandbox does not have, where only compose could tell."""
    for path, service, directory in service_mentions(task):
        try:
            if directory == task.environment_dir:
                service_of(sandbox, service)
        except UsageError as error:
            key = ".".join(part for part in path if isinstance(part, str))
            raise UsageError(f"{task.file}: {key} is {service!r}: {error.message}", advice=error.advice) from None


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
