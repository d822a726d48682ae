"""A program in a container as a byte pipe, and the frames in which the daemon interleaves its output streams."""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import BinaryIO, cast

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.docker.connection import Connection

STDOUT, STDERR = 1, 2
_PIECE = 1 << 16


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the stream's number and a piece of it, until the connection ends."""
    try:
        while True:
            header = await reader.readexactly(8)
            left = int.from_bytes(header[4:], "big")
            while left:
                data = await reader.read(min(left, _PIECE))
                if not data:
                    return
                left -= len(data)
                yield header[0], data
    except (asyncio.IncompleteReadError, ConnectionError):
        return


async def plain(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    """Yield what comes from a terminal, which has one stream and no frames, until the connection ends."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_PIECE):
            yield STDOUT, data


_MAX_PIECES = 128


class Reader:
    """The reading side of a file, over pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._chunks = pieces
        self._rest = b""

    def read(self, n: int = -1) -> bytes:
        """Return exactly `n` bytes, less only at the end."""
        parts, missing = [self._rest], n - len(self._rest)
        while n < 0 or missing > 0:
            piece = next(self._chunks, b"")
            if not piece:
                break
            parts.append(piece)
            missing -= len(piece)
        data = b"".join(parts)
        self._rest = data[n:] if n >= 0 else b""
        return data[:n] if n >= 0 else data


class Pipe:
    """Fed on the event loop, drained in a thread; a slow reader slows the writer down."""

    def __init__(self) -> None:
        self._queue: queue.Queue[bytes] = queue.Queue()
        self._drained = False

    async def feed(self, data: bytes) -> None:
        """Hand over a piece; once the reader has ended it is dropped."""
        while self._queue.qsize() > _MAX_PIECES and not self._drained:  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(0.001)
        if not self._drained:
            self._queue.put(data)

    def close(self) -> None:
        """End the stream; idempotent."""
        self._queue.put(b"")

    def drain_into(self, work: Callable[[BinaryIO], None]) -> None:
        """Give `work` the stream; call this in the thread."""
        try:
            work(cast(BinaryIO, Reader(iter(self._queue.get, b""))))
        finally:
            self._drained = True


#: Both streams share one connection: a reader of one must not starve because nobody reads the other.
_BUFFER = 8 << 20
_CHUNK = 1 << 18


class Streams:
    """Takes the two outputs of a connection apart; a reader that is slow slows the program down."""

    def __init__(self, connection: Connection, pieces: AsyncIterator[tuple[int, bytes]]) -> None:
        self._connection = connection
        self._pieces = pieces
        self._buffers = {STDOUT: bytearray(), STDERR: bytearray()}
        self._changed = asyncio.Condition()
        self._dropping = False
        self.ended = asyncio.Event()
        self._pump = asyncio.create_task(self._run())

    async def read(self, stream: int, n: int) -> bytes:
        """Return up to `n` bytes, b"" at the end."""
        buffer = self._buffers[stream]
        async with self._changed:
            await self._changed.wait_for(lambda: buffer or self.ended.is_set() or n == 0)
            data = bytes(buffer[:n])
            del buffer[:n]
            self._changed.notify_all()
        return data

    async def drop(self) -> None:
        """Lose what nobody has room for: an engine does not notice the end of a program whose output is stuck."""
        async with self._changed:
            self._dropping = True
            self._changed.notify_all()

    def seen(self, stream: int) -> bytes:
        """Return what waits to be read."""
        return bytes(self._buffers[stream])

    def close(self) -> None:
        """Stop reading; idempotent."""
        self._pump.cancel()
        self._connection.close()

    async def _run(self) -> None:
        try:
            async for stream, data in self._pieces:
                buffer = self._buffers[stream]
                async with self._changed:
                    await self._changed.wait_for(lambda full=buffer: len(full) < _BUFFER or self._dropping)  # type: ignore[misc]
                    buffer += data if len(buffer) < _BUFFER else b""
                    self._changed.notify_all()
        finally:
            self.ended.set()
            self._connection.close()
            with contextlib.suppress(RuntimeError):
                async with self._changed:
                    self._changed.notify_all()


class DockerProcess:
    """Implements `Process` on a connection that the engine has handed over."""

    _pieces = staticmethod(frames)

    def __init__(
        self,
        connection: Connection,
        exit_code: Callable[[], Awaitable[int | None]],
        kill: Callable[[], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._exit_code = exit_code
        self._kill = kill
        self._status: int | None = None
        self._stdin_open = True
        self._turn = asyncio.Lock()
        self.streams = Streams(connection, self._pieces(connection.reader))

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input, waiting while the pipe is full."""
        view = memoryview(data)
        async with self._turn:
            while view:
                if not self._stdin_open or self.streams.ended.is_set():
                    raise BrokenPipeError("standard input is closed")
                await self._connection.write(bytes(view[:_CHUNK]))
                view = view[_CHUNK:]

    async def close_stdin(self) -> None:
        """Close its standard input; idempotent."""
        self._stdin_open = False
        self._connection.write_eof()

    async def read(self, n: int = 65536) -> bytes:
        """Return up to `n` bytes of its standard output; b"" at the end."""
        return await self.streams.read(STDOUT, n)

    async def read_stderr(self, n: int = 65536) -> bytes:
        """Return up to `n` bytes of its standard error; b"" at the end."""
        return await self.streams.read(STDERR, n)

    async def wait(self) -> int:
        """Wait for its exit and return the status."""
        pause = 0.25
        while self._status is None:
            # The streams end with the program, unless they are full or a child of it has them too.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.streams.ended.wait()
            pause = 0.02 if self.streams.ended.is_set() else min(pause * 2, 4.0)
            self._status = await self._exit_code()
            if self._status is None and self.streams.ended.is_set():
                await asyncio.sleep(pause)
        return self._status

    async def kill(self) -> None:
        """Kill the whole process tree inside the sandbox; idempotent."""
        await self.close_stdin()
        await self.streams.drop()
        try:
            await self._kill()
        except SandboxError:
            # Whatever was left of it ended with the sandbox.
            if not self.streams.ended.is_set():
                raise

    def close(self) -> None:
        """Let go of the connection; what it writes from now on is lost."""
        self.streams.close()


class DockerTerminal(DockerProcess):
    """Implements `Terminal`: a program for which the engine made a terminal in the container."""

    _pieces = staticmethod(plain)

    def __init__(
        self,
        connection: Connection,
        exit_code: Callable[[], Awaitable[int | None]],
        kill: Callable[[], Awaitable[None]],
        resize: Callable[[int, int], Awaitable[None]],
    ) -> None:
        super().__init__(connection, exit_code, kill)
        self._resize = resize

    async def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        await self._resize(rows, columns)
