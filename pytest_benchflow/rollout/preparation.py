"""What the configuration of a rollout adds to a sandbox before any agent is in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.errors import BenchflowError, SandboxError, UsageError
from pytest_benchflow.rollout.stage import must
from pytest_benchflow.tasks import resolve_env

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


async def run_setup_commands(sandbox: Sandbox, task: Task) -> None:
    """Run the commands that prepare the task's environment; each has to succeed."""
    where = f"{task.file}: [environment.setup_commands.env]"
    for setup in task.config.environment.setup_commands:
        env = resolve_env(setup.env, os.environ, where)
        await must(sandbox, setup.command, setup.timeout_sec, user=setup.user, cwd=setup.cwd, env=env)


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
