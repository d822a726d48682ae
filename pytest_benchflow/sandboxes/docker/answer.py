"""Find the word of a command's end in its output, and keep the output before it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .frames import STDERR, STDOUT

Sink = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: str
    """Its exit status, or a word of the guest's scripts: `cwd` if the directory was missing."""
    note: str
    """`1` if another process still has its streams."""


class Answer:
    """Takes the pieces of both streams until each has told the end of the request."""

    def __init__(self, stdout: Sink, stderr: Sink, *, nonce: str | None = None) -> None:
        self.nonce = nonce or secrets.token_hex(12)
        self._searches = {STDOUT: _Search(self.nonce, stdout), STDERR: _Search(self.nonce, stderr)}
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting any more when the connection is lost.
        self.ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def feed(self, stream: int, data: bytes) -> None:
        """Take the next piece of a stream; what follows the end is dropped."""
        search = self._searches[stream]
        await search.feed(data)
        if all(each.found is not None for each in self._searches.values()) and not self.ended.done():
            assert search.found is not None
            status, _, note = search.found.decode(errors="replace").partition(" ")
            self.ended.set_result(Ended(status, note))

    async def flush(self) -> None:
        """Hand on what was held back because an end might have begun there."""
        for search in self._searches.values():
            await search.flush()


class _Search:
    def __init__(self, nonce: str, sink: Sink) -> None:
        self._mark = b"\0bf " + nonce.encode() + b" "
        self._sink = sink
        self._held = b""
        self.found: bytes | None = None

    async def feed(self, data: bytes) -> None:
        if self.found is not None:
            return
        data = self._held + data
        start = data.find(self._mark)
        if start < 0:
            start = self._possible_start(data)
        elif (end := data.find(b"\n", start)) >= 0:
            self.found = data[start + len(self._mark) : end]
        if start:
            await self._sink(data[:start])
        self._held = b"" if self.found is not None else data[start:]

    async def flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            await self._sink(held)

    def _possible_start(self, data: bytes) -> int:
        """Return where a mark may begin whose rest has not come yet."""
        start = data.find(b"\0", max(0, len(data) - len(self._mark) + 1))
        while start >= 0 and not self._mark.startswith(data[start:]):
            start = data.find(b"\0", start + 1)
        return len(data) if start < 0 else start
