"""Commands that a task brings along, run where it says, and have to succeed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes import service_of
from pytest_benchflow.tasks import resolve_env

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox, Service
    from pytest_benchflow.tasks import SetupCommand


async def must(
    service: Service,
    command: str,
    timeout_sec: float,
    *,
    user: str | int | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a command of the task's own that has to succeed."""
    try:
        done = await service.exec(command, user=user, cwd=cwd, env=env, timeout_sec=timeout_sec)
    except TimeoutError:
        raise SandboxError(f"{command!r} did not end within {timeout_sec:g} s", retryable=False) from None
    if done.return_code:
        said = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise SandboxError(f"{command!r} ended with status {done.return_code}: {said}", retryable=False)


async def run_setup_commands(sandbox: Sandbox, commands: Sequence[SetupCommand], where: str) -> None:
    """Run the commands that prepare an environment, each in its service; `where` names their table in messages."""
    for setup in commands:
        env = resolve_env(setup.env, os.environ, where)
        service = service_of(sandbox, setup.service)
        await must(service, setup.command, setup.timeout_sec, user=setup.user, cwd=setup.cwd, env=env)
