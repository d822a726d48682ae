"""Run `docker compose`: the one thing that is left to the command line, since no library does it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_benchflow.errors import SandboxError

from .address import Address

_NO_COMPOSE = ("is not a docker command", "unknown shorthand flag", "unknown command")


class ComposeFailed(Exception):
    """A compose command ended with an error; `output` is what it said."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


class ComposeCli:
    """Compose commands on one project."""

    def __init__(
        self, address: Address, project: str, directory: Path, files: Sequence[Path], variables: Mapping[str, str]
    ) -> None:
        self._words = ["docker", "compose", "--project-name", project, "--project-directory", str(directory)]
        self._words += [word for file in files for word in ("--file", str(file))]
        self._env = {**address.environment(), **variables, "COMPOSE_ANSI": "never"}

    async def run(self, *words: str, timeout_sec: float) -> str:
        """Return the output of a command; ComposeFailed if it fails, TimeoutError if it is too slow."""
        try:
            program = await asyncio.create_subprocess_exec(
                *self._words,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._env,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise _missing() from None
        try:
            async with asyncio.timeout(timeout_sec):
                out, err = await program.communicate()
        finally:
            if program.returncode is None:
                os.killpg(program.pid, signal.SIGKILL)
                await asyncio.shield(program.wait())
        if program.returncode != 0:
            # A build tells its steps on one stream and why it failed on the other.
            text = "\n".join(filter(None, (part.decode(errors="replace").strip() for part in (out, err))))
            if any(sign in text for sign in _NO_COMPOSE):
                raise _missing()
            raise ComposeFailed(text)
        return out.decode(errors="replace")


def _missing() -> SandboxError:
    return SandboxError(
        "the task has a docker-compose file, and there is no `docker compose` here",
        advice="install the Docker CLI with compose v2",
        retryable=False,
    )
