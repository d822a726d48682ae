"""The runner's end of a terminal in a local sandbox."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import termios
from collections.abc import Callable

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.local.control import Control
from pytest_benchflow.sandboxes.local.pipes import ReadPipe, WritePipe


def receive(connection: int) -> int:
    """Return the end of a terminal that its program sent before it started."""
    with socket.socket(fileno=os.dup(connection)) as channel:
        _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    if not fds:
        raise SandboxError("the program ended before it had a terminal")
    os.set_inheritable(fds[0], False)
    return fds[0]


class _Screen(ReadPipe):
    """Ends where nobody has the terminal open any more, which the kernel reports as an error."""

    async def read(self, n: int) -> bytes:
        try:
            return await super().read(n)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.close()
            return b""


class LocalTerminal:
    """Implements `Terminal`; closed by the machine at the latest."""

    def __init__(
        self,
        control: Control,
        number: int,
        status: asyncio.Future[int],
        fd: int,
        closed: Callable[[LocalTerminal], None],
    ) -> None:
        self._control = control
        self._number = number
        self._status = status
        self._fd = fd
        self._on_close = closed
        # A number for each direction: a loop waits for numbers.
        self._screen, self._keyboard = _Screen(fd), WritePipe(os.dup(fd))

    async def write(self, data: bytes) -> None:
        """Type bytes, waiting while the program is slow."""
        try:
            await self._keyboard.write(data)
        except OSError as error:
            raise BrokenPipeError("the program has ended") from error

    async def read(self, n: int = 65536) -> bytes:
        """Return up to `n` bytes of what it printed; b"" at the end."""
        return await self._screen.read(n)

    async def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        if self._screen.is_open:
            termios.tcsetwinsize(self._fd, (rows, columns))

    async def wait(self) -> int:
        """Wait for its exit and return the status."""
        return await asyncio.shield(self._status)

    async def kill(self) -> None:
        """Kill the whole process tree inside the sandbox; idempotent."""
        await self._control.kill(self._number, self._status)

    def close(self) -> None:
        """Let go of the terminal, which hangs up on whoever still uses it."""
        self._keyboard.close()
        self._screen.close()
        self._on_close(self)
