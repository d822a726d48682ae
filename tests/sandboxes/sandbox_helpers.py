"""What several sandbox tests ask of a sandbox."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_benchflow.sandboxes import Sandbox
from pytest_benchflow.sandboxes.local.backend import LocalBackend
from pytest_benchflow.sandboxes.local.host import Host

StartSandbox = Callable[..., Awaitable[Sandbox]]

needs_users = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox knows only root")
only_root = pytest.mark.skipif(os.geteuid() == 0, reason="root's sandboxes have other users")


def on_disk() -> LocalBackend:
    """Return the backend of an ordinary user whose memory cannot hold what sandboxes write."""
    return LocalBackend(replace(Host.detect(), privileged=False, writes_to_memory=False))


def zygotes() -> set[int]:
    """List the processes that fork sandboxes for this one."""
    children = map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
    return {pid for pid in children if b"zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()}


async def output(sandbox: Sandbox, cmd: str, **how: object) -> str:
    """Run a command and return all that it printed."""
    result = await sandbox.exec(cmd, **how)  # type: ignore[arg-type]
    return result.stdout + result.stderr


async def processes(sandbox: Sandbox, pattern: str) -> list[str]:
    """List the command lines in the sandbox that hold `pattern`."""
    listing = await sandbox.exec("for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null")
    return [line for line in listing.stdout.splitlines() if pattern in line]
