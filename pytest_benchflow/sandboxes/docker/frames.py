"""Both output streams of a program, as the daemon interleaves them in one connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

STDOUT, STDERR = 1, 2
_PIECE = 1 << 16
#: What is kept of one stream of a finished command: this much of its start and as much of its end.
CAPTURE_BYTES = 16 << 20


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the stream's number and a piece of it, until the connection ends."""
    try:
        while True:
            head = await reader.readexactly(8)
            left = int.from_bytes(head[4:], "big")
            while left:
                data = await reader.read(min(left, _PIECE))
                if not data:
                    return
                left -= len(data)
                yield head[0], data
    except (asyncio.IncompleteReadError, ConnectionError):
        return


class Capture:
    """Collects the output of a command, bounded: of a flood it keeps the start and the end."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    async def feed(self, data: bytes) -> None:
        """Take the next piece."""
        room = CAPTURE_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Trimmed in big steps: cutting the front off at every piece would copy the whole tail each time.
        if (excess := len(self._tail) - CAPTURE_BYTES) > CAPTURE_BYTES // 4:
            del self._tail[:excess]
            self._dropped += excess

    def text(self) -> str:
        """Return what was collected, decoded with replacement."""
        if not self._dropped:
            return (self._head + self._tail).decode(errors="replace")
        left_out = f"\n[... {self._dropped} bytes left out ...]\n"
        return self._head.decode(errors="replace") + left_out + self._tail.decode(errors="replace")
