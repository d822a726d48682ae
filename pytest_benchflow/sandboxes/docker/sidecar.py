"""A service beside the sandbox: a container with an image of its own, without our PID 1 and maybe without bash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import ClassVar

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.base import ExecResult
from pytest_benchflow.sandboxes.docker import transfer
from pytest_benchflow.sandboxes.docker.client import DockerEngine
from pytest_benchflow.sandboxes.docker.exec import Command, ShellContainer
from pytest_benchflow.sandboxes.docker.guest import script

_KILL_TIMEOUT_SEC = 20.0


class ServiceContainer(ShellContainer):
    """Runs commands with whatever the image calls sh."""

    _starts_in: ClassVar[str | None] = None

    async def kill(self, mark: str, began: float, user: str) -> None:
        """Kill every process of a command; return when they are gone."""
        argv = ["sh", "-c", script("kill", suffix="sh"), "sh", mark]
        try:
            async with asyncio.timeout(_KILL_TIMEOUT_SEC):
                # Only its own user may read a process's environment, and only root reaches what changed its user.
                for killer in dict.fromkeys((user, "0")):
                    code, output = await self._execs.run(argv, user=killer)
                    if code:
                        text = output.decode(errors="replace").strip()
                        raise SandboxError(f"{self.title}: a command could not be killed {text}".rstrip())
        except TimeoutError:
            raise SandboxError(f"{self.title}: a command could not be killed within {_KILL_TIMEOUT_SEC:g} s") from None

    def _argv(self, nonce: str, command: Command) -> list[str]:
        return ["sh", "-c", script("exec", suffix="sh"), "sh", nonce, command.cwd, command.text]


class DockerService:
    """Implements `Service`; the container is looked up each time, for it may have been replaced."""

    def __init__(self, engine: DockerEngine, find: Callable[[], Awaitable[str]], title: str) -> None:
        self._engine = engine
        self._find = find
        self._title = title

    async def exec(
        self,
        cmd: str,
        *,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: float | None = None,
        stdin: bytes | None = None,
    ) -> ExecResult:
        """Run a command line with the service's own sh."""
        command = Command(cmd, cwd=cwd or "", user="" if user is None else str(user), env=env or {})
        return await (await self._container()).run(command, stdin=stdin, timeout_sec=timeout_sec)

    async def upload_file(self, source: Path, target: str) -> None:
        """Copy a host file to exactly `target`, keeping its mode."""
        await transfer.upload_file(await self._container(), source, target)

    async def upload_dir(self, source: Path, target: str) -> None:
        """Copy the content of a host directory into `target`."""
        await transfer.upload_dir(await self._container(), source, target)

    async def download_file(self, source: str, target: Path) -> None:
        """Copy a file out of the service, running or not."""
        await transfer.download_file(await self._container(), source, target)

    async def download_dir(self, source: str, target: Path) -> None:
        """Copy the content of a directory out of the service, running or not."""
        await transfer.download_dir(await self._container(), source, target)

    async def _container(self) -> ServiceContainer:
        return ServiceContainer(self._engine, await self._find(), self._title, user="")
