"""A program in a local sandbox, seen as a byte pipe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .control import Control
from .pipes import ReadPipe, WritePipe


class LocalProcess:
    """Implements `Process`; closed by the machine at the latest."""

    def __init__(
        self,
        control: Control,
        number: int,
        status: asyncio.Future[int],
        stdin: WritePipe,
        stdout: ReadPipe,
        stderr: ReadPipe,
        closed: Callable[[LocalProcess], None],
    ) -> None:
        self._control = control
        self._number = number
        self._status = status
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr
        self._on_close = closed

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input, waiting while the pipe is full."""
        await self._stdin.write(data)

    async def close_stdin(self) -> None:
        """Close its standard input; idempotent."""
        self._stdin.close()

    async def read(self, n: int = 65536) -> bytes:
        """Return up to `n` bytes of its standard output; b"" at the end."""
        return await self._stdout.read(n)

    async def read_stderr(self, n: int = 65536) -> bytes:
        """Return up to `n` bytes of its standard error; b"" at the end."""
        return await self._stderr.read(n)

    async def wait(self) -> int:
        """Wait for its exit and return the status."""
        return await asyncio.shield(self._status)

    async def kill(self) -> None:
        """Kill the whole process tree inside the sandbox; idempotent."""
        self._stdin.close()
        await self._control.kill(self._number, self._status)

    def close(self) -> None:
        """Let go of its pipes; what it writes from now on is lost."""
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()
        self._on_close(self)
