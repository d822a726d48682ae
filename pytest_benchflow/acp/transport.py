"""The transport that the protocol library's connection runs on: a process's byte pipe.

Notifications are handed over here, in order and at once: the library would run each in a task of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pytest_benchflow.acp.framing import Framer, Message, Noise, well_formed

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Process

_READ_BYTES = 1 << 18
#: A pipe that is never empty never makes its reader wait: after this many reads the others get their turn.
_READS_IN_A_ROW = 4
#: Our ids start far from the small numbers that agents give their own requests.
_FIRST_ID = 100_000
#: An agent that asks without reading the answers is not read either.
_MAX_UNANSWERED = 256


class PipeTransport:
    """Implements the library's `Transport`."""

    def __init__(
        self,
        process: Process,
        *,
        seen: Callable[[Message], bool],
        log: Callable[[bytes], None],
        max_line_bytes: int,
    ) -> None:
        self._process = process
        self._seen = seen
        self._log = log
        self._framer = Framer(max_line_bytes)
        self._ready: deque[Message] = deque()
        self._writing = asyncio.Lock()
        self._unanswered = 0
        self._answered = asyncio.Event()
        self._reads = 0
        self._ended = False
        self.failure: Exception | None = None
        """What ended the stream, if it was not the agent."""

    async def send(self, message: Message) -> None:
        """Write one message; an answer that nobody will read is no error."""
        is_answer = "method" not in message
        number = message.get("id")
        if not is_answer and isinstance(number, int):
            message = {**message, "id": number + _FIRST_ID}
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            async with self._writing:
                await self._process.write(line)
        except Exception as error:
            if not isinstance(error, OSError):
                self.fail(error)
            if not is_answer:
                raise ConnectionError(str(error)) from error
        finally:
            if is_answer:
                self._unanswered -= 1
                self._answered.set()

    async def receive(self) -> Message | None:
        """Return the next request or response, None at the end."""
        while not self._ready:
            if self._ended:
                return None
            try:
                self._take(await self._process.read(_READ_BYTES))
            except OSError:
                self._ended = True
            except Exception as error:
                self.fail(error)
            self._reads += 1
            if self._reads % _READS_IN_A_ROW == 0:
                await asyncio.sleep(0)
        message = self._ready.popleft()
        if "method" in message:
            while self._unanswered >= _MAX_UNANSWERED:
                self._answered.clear()
                await self._answered.wait()
            self._unanswered += 1
        return message

    async def close(self) -> None:
        """Nothing to do: the process is ended by its owner."""

    def fail(self, error: Exception) -> None:
        """End the stream with an error that is not the agent's."""
        self._ended = True
        if self.failure is None:
            self.failure = error

    def _take(self, data: bytes) -> None:
        if not data:
            self._ended = True
        noise: list[bytes] = []
        for item in self._framer.feed(data) if data else self._framer.end():
            if isinstance(item, Noise):
                noise.append(item.data)
            elif (message := well_formed(item)) is None:
                noise.append(json.dumps(item).encode() + b"\n")
            elif self._seen(message):
                if "method" not in message:
                    message["id"] = cast("int", message["id"]) - _FIRST_ID
                self._ready.append(message)
        if noise:
            self._log(b"".join(noise))
