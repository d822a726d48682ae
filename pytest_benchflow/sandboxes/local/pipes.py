"""Byte pipes on the event loop, read only when asked, so that a slow reader slows the writer down."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from types import TracebackType

from pytest_benchflow.core.capture import Capture


class ProgramPipes:
    """Makes pipes of which the program gets one end and the runner keeps the other."""

    def __init__(self) -> None:
        self._program_ends: list[int] = []
        self._runner_ends: list[int] = []

    @property
    def program_ends(self) -> tuple[int, ...]:
        """The descriptors to send, in the order they were made."""
        return tuple(self._program_ends)

    def to_program(self) -> int:
        """Return the writing end of a pipe that the program reads."""
        read, write = os.pipe()
        self._program_ends.append(read)
        self._runner_ends.append(write)
        return write

    def from_program(self) -> int:
        """Return the reading end of a pipe that the program writes."""
        read, write = os.pipe()
        self._program_ends.append(write)
        self._runner_ends.append(read)
        return read

    def socket(self) -> int:
        """Return the runner's end of a socket whose other end the program gets."""
        ours, theirs = socket.socketpair()
        self._program_ends.append(theirs.detach())
        self._runner_ends.append(ours.detach())
        return self._runner_ends[-1]

    def content(self, data: bytes) -> None:
        """Let the program read `data`, which it finds as a file; nobody has to feed a pipe."""
        if not data:
            self._program_ends.append(os.open(os.devnull, os.O_RDONLY))
            return
        with open(os.memfd_create("bf-stdin", os.MFD_CLOEXEC), "wb") as file:
            file.write(data)
            file.flush()
            self._program_ends.append(os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY))

    def __enter__(self) -> ProgramPipes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self._program_ends if kind is None else (*self._program_ends, *self._runner_ends):
            os.close(fd)


_CHUNK = 1 << 18


class _Pipe:
    """One end of a pipe; whoever waits for it takes turns, and is woken when it is closed."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd: int | None = fd
        self._turn = asyncio.Lock()
        self._ready: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        return self._fd is not None

    def close(self) -> None:
        """Let go of it; idempotent."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            loop = asyncio.get_running_loop()
            loop.remove_reader(fd)
            loop.remove_writer(fd)
            os.close(fd)
            self._wake()

    async def _until(self, *, writable: bool) -> None:
        """Wait until the pipe can be used, or is closed."""
        loop = asyncio.get_running_loop()
        assert self._fd is not None
        fd, self._ready = self._fd, loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if writable else (loop.add_reader, loop.remove_reader)
        add(fd, self._wake)
        try:
            await self._ready
        finally:
            # Once closed, the number may be another file's.
            if self._fd is not None:
                remove(fd)

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)


class ReadPipe(_Pipe):
    """The runner's end of a program's output."""

    async def read(self, n: int) -> bytes:
        """Return up to `n` bytes, b"" at the end."""
        async with self._turn:
            while self._fd is not None and n:
                try:
                    data = os.read(self._fd, n)
                except BlockingIOError:
                    await self._until(writable=False)
                    continue
                if not data:
                    self.close()
                return data
        return b""


class WritePipe(_Pipe):
    """The runner's end of a program's input."""

    async def write(self, data: bytes) -> None:
        """Send all of `data`, waiting while the pipe is full; BrokenPipeError if nobody reads."""
        view = memoryview(data)
        async with self._turn:
            while view:
                if self._fd is None:
                    raise BrokenPipeError("standard input is closed")
                try:
                    view = view[os.write(self._fd, view[:_CHUNK]) :]
                except BlockingIOError:
                    await self._until(writable=True)


class Collector:
    """Collects all output of a command, bounded: of a flood it keeps the start and the end."""

    def __init__(self, fd: int, closed: Callable[[Collector], None]) -> None:
        os.set_blocking(fd, False)
        self._fd: int | None = fd
        self._on_close = closed
        self._capture = Capture()
        self._discarding = False
        self.ended = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(fd, self._read)

    def text(self) -> str:
        """Return what was collected, decoded with replacement."""
        return self._capture.text()

    def finish(self) -> None:
        """Take what is in the pipe now; what a background process writes later is read and dropped."""
        while self._fd is not None and self._read():
            pass
        self._discarding = True

    def close(self) -> None:
        """Stop reading; idempotent."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
            self._on_close(self)
        if not self.ended.done():
            self.ended.set_result(None)

    def _read(self) -> bool:
        assert self._fd is not None
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
        elif not self._discarding:
            self._capture.add(data)
        return bool(data)
