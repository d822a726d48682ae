"""Bytes that arrive piece by piece, read as a file in a thread."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

_MAX_PIECES = 128


class Reader:
    """The reading side of a file, over pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, n: int = -1) -> bytes:
        """Return exactly `n` bytes, less only at the end."""
        parts, missing = [self._rest], n - len(self._rest)
        while n < 0 or missing > 0:
            piece = next(self._pieces, b"")
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
