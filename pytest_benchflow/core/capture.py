"""Output of programs in bounded memory: of a flood the start and the end are kept."""

from __future__ import annotations

#: What is kept of one stream of a finished command: this much of its start and as much of its end.
CAPTURE_BYTES = 16 << 20


class Tail:
    """Keeps the last bytes of a stream, and counts those before them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.dropped = 0

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        self._data += data
        # Trimmed in big steps: cutting the front off at every piece would copy the whole tail each time.
        if len(self._data) - self._limit > self._limit // 4:
            self._trim()

    def content(self) -> bytes:
        """Return what is kept: no more than the limit."""
        self._trim()
        return bytes(self._data)

    def _trim(self) -> None:
        if (excess := len(self._data) - self._limit) > 0:
            del self._data[:excess]
            self.dropped += excess


class Capture:
    """Keeps the start and the end of a stream."""

    def __init__(self, head: int = CAPTURE_BYTES, tail: int = CAPTURE_BYTES) -> None:
        self._room = head
        self._head = bytearray()
        self._tail = Tail(tail)

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        if self._room >= len(data):
            self._head += data
            self._room -= len(data)
            return
        self._head += data[: self._room]
        self._tail.add(data[self._room :])
        self._room = 0

    async def feed(self, data: bytes) -> None:
        """Take the next piece from a sender that waits for its receivers."""
        self.add(data)

    def text(self) -> str:
        """Return what was captured, decoded with replacement."""
        tail = self._tail.content()
        if not self._tail.dropped:
            return (self._head + tail).decode(errors="replace")
        return self._head.decode(errors="replace") + omission(self._tail.dropped) + tail.decode(errors="replace")


def omission(count: int) -> str:
    """Return the line that stands for bytes that were not kept."""
    return f"\n[... {count} bytes left out ...]\n"
