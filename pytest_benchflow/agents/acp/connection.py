"""The connection to an agent: its process, the protocol on its byte pipe, and whatever it prints beside it.

Banners, log lines and glued objects are all legal noise. Notifications are handed over in order and at once: the
protocol library would run each in a task of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.core.text import one_line, printable
from pytest_benchflow.core.types import Json

if TYPE_CHECKING:
    from acp.connection import Connection

    from pytest_benchflow.sandboxes import Process


Message: TypeAlias = dict[str, Json]

#: Where objects glued to other text are looked for: a longer line, or one with more braces, is not worth the time.
_SALVAGE_BYTES = 1 << 20
_SALVAGE_TRIES = 64
#: No agent nests its messages nearly as deeply; what does is noise.
_MAX_DEPTH = 128
#: Requests that only a client sends; seen on the agent's output they are an echo of ours.
_ECHOES = frozenset({"initialize", "authenticate", "session/new", "session/prompt", "session/cancel"})


@dataclass(frozen=True, slots=True)
class Noise:
    """Output that is not a message, for the agent's log."""

    data: bytes


class Framer:
    """Cut a byte stream at its line ends; the result does not depend on how the stream was split."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max = max_line_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[Message | Noise]:
        """Yield what the bytes complete."""
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._add(piece)
            yield from self._take(b"\n")
        self._add(rest)

    def end(self) -> Iterator[Message | Noise]:
        """Yield what the stream left without a line end."""
        yield from self._take(b"")

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max:
            self._parts.clear()
        elif piece:
            self._parts.append(piece)

    def _take(self, end: bytes) -> Iterator[Message | Noise]:
        parts, size = self._parts, self._size
        self._parts, self._size = [], 0
        if size > self._max:
            yield Noise(b"[a line of %d bytes was skipped, the limit is %d]\n" % (size, self._max))
        elif size:
            yield from decode(parts[0] if len(parts) == 1 else b"".join(parts), end)


def decode(line: bytes, end: bytes = b"\n") -> Iterator[Message | Noise]:
    """Yield the messages of one line, or the line itself."""
    stripped = line.strip(b" \t\r\xef\xbb\xbf\x00")
    if not stripped:
        return
    messages: list[Message] = []
    if stripped[:1] in (b"{", b"["):
        value = _parse(stripped)
        messages = [*_salvage(stripped)] if value is _BROKEN else _messages(value)
    elif b'"jsonrpc"' in stripped:
        messages = [*_salvage(stripped)]
    if stripped.count(b"[") + stripped.count(b"{") > _MAX_DEPTH:
        messages = [message for message in messages if not _is_too_deep(message)]
    if messages:
        yield from messages
    else:
        yield Noise(line + end)


_BROKEN: Json = object()  # type: ignore[assignment]


def _is_too_deep(message: Message) -> bool:
    """Return whether a message nests deeper than whatever writes, reads or shows it later could follow."""
    level: list[Json] = [message]
    for _ in range(_MAX_DEPTH):
        containers = (value.values() if isinstance(value, dict) else value for value in level)
        level = [child for container in containers for child in container if isinstance(child, dict | list)]  # type: ignore[union-attr]
        if not level:
            return False
    return True


def _no_number(_: str) -> None:
    """Take NaN and the infinities for null: they are not JSON, and whatever reads the trajectory would refuse them."""


def _parse(line: bytes) -> Json:
    try:
        value: Json = json.loads(line.decode("utf-8", "replace"), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return _BROKEN
    return value


def _salvage(line: bytes) -> Iterator[Message]:
    """Yield the messages that stand in a line beside other text or beside each other."""
    if len(line) > _SALVAGE_BYTES or b'"jsonrpc"' not in line:
        return
    text = line.decode("utf-8", "replace")
    decoder = json.JSONDecoder(parse_constant=_no_number)
    at = text.find("{")
    for _ in range(_SALVAGE_TRIES):
        if at < 0:
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            yield from _messages(value)
        at = text.find("{", at)


def _messages(value: Json) -> list[Message]:
    """Return what is a message of a value or, if it is a batch, of its parts; other JSON is a log line."""
    parts = value if isinstance(value, list) else [value]
    return [part for part in parts if isinstance(part, dict) and "jsonrpc" in part]


def well_formed(message: Message) -> Message | None:
    """Return a request, notification or response that a JSON-RPC peer can take, or None."""
    number = message.get("id")
    if "method" in message:
        method = message["method"]
        sane = isinstance(method, str) and isinstance(number, int | str | None) and method not in _ECHOES
        return message if sane else None
    if isinstance(number, str) and number.isdecimal():
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    if message.get("error") is not None:
        return {"jsonrpc": "2.0", "id": number, "error": _error(message["error"])}
    return {"jsonrpc": "2.0", "id": number, "result": message.get("result")}


def _error(error: Json) -> Json:
    """Return an error as the object it should be; some agents send its text alone."""
    if not isinstance(error, dict):
        return {"code": -32603, "message": error if isinstance(error, str) else json.dumps(error), "data": None}
    code, text = error.get("code"), error.get("message")
    return {
        "code": code if isinstance(code, int) and not isinstance(code, bool) else -32603,
        "message": text if isinstance(text, str) else json.dumps(text),
        "data": error.get("data"),
    }


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
        self, process: Process, *, seen: Callable[[Message], bool], log: Callable[[bytes], None], max_line_bytes: int
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
        """Write one message; an answer that nobody will read is not an error."""
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


_TAIL_BYTES = 4000
_WAIT_SEC = 5.0
_KILL_SEC = 30.0


class Rejected(Exception):
    """The agent answered a request with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Gone(Exception):
    """The agent ended or closed its output."""


class Peer:
    """Owns the process from here on; `stop()` ends everything."""

    def __init__(
        self,
        process: Process,
        *,
        seen: Callable[[Message], bool],
        permission: Callable[[Json], Awaitable[Json]],
        log: Callable[[bytes], None],
        max_line_bytes: int,
    ) -> None:
        # Heavy: imported with the first session, not with this module.
        from acp.connection import Connection
        from acp.exceptions import RequestError

        self._process = process
        self._log = log
        self._tail = b""
        self._stopped = False
        self._broken = asyncio.Event()
        self._request_error = RequestError
        self._permission = permission
        self._transport = PipeTransport(process, seen=seen, log=self._note, max_line_bytes=max_line_bytes)
        self._connection: Connection = Connection(self._handle, self._transport)
        self._stderr = asyncio.create_task(self._drain())

    async def request(self, method: str, params: Json) -> dict[str, Json]:
        """Return the agent's answer."""
        sent = asyncio.ensure_future(self._connection.send_request(method, params))
        broken = asyncio.ensure_future(self._broken.wait())
        try:
            await asyncio.wait([sent, broken], return_when=asyncio.FIRST_COMPLETED)
            if self.failure is not None:
                raise self.failure
            result = await sent
        except self._request_error as error:
            raise Rejected(error.code, _told(str(error), error.data)) from None
        except ConnectionError as error:
            raise self.failure or Gone() from error
        finally:
            for task in (sent, broken):
                task.cancel()
            await asyncio.wait([sent, broken])
            if not sent.cancelled():
                sent.exception()
        return result if isinstance(result, dict) else {}

    async def notify(self, method: str, params: Json) -> None:
        """Tell the agent something, if it still listens."""
        with contextlib.suppress(ConnectionError):
            await self._connection.send_notification(method, params)

    def fail(self, error: Exception) -> None:
        """End the connection because of a failure on this side."""
        self._transport.fail(error)
        self._broken.set()

    @property
    def failure(self) -> Exception | None:
        """What went wrong on this side, or between the sides."""
        return self._transport.failure

    def stderr_tail(self, lines: int = 3) -> str:
        """Return the last lines of the agent's standard error, as one."""
        last_lines = printable(self._tail.decode("utf-8", "replace")).strip().splitlines()[-lines:]
        return one_line(" | ".join(line.strip() for line in last_lines if line.strip()), 500)

    async def exit_summary(self) -> str:
        """Say how the agent ended, once its output did."""
        status: int | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_SEC):
                status = await self._process.wait()
                await asyncio.wait([self._stderr], timeout=1)
        how = "closed its output" if status is None else f"exited with status {status}"
        words = self.stderr_tail(1)
        return f"{how}: {words}" if words else how

    async def stop(self, *, leaves_programs: bool = False) -> None:
        """Kill the whole process tree and end the connection; idempotent.

        An agent that ends by itself, once nobody talks to it any more, can leave its programs.
        """
        if self._stopped:
            return
        try:
            if not (leaves_programs and await self._ends()):
                async with asyncio.timeout(_KILL_SEC):
                    await self._process.kill()
            self._stopped = True
        except TimeoutError:
            raise SandboxError(f"the agent could not be killed within {_KILL_SEC:g} s") from None
        finally:
            await asyncio.wait([self._stderr], timeout=1)
            self._stderr.cancel()
            await self._connection.close()

    async def _ends(self) -> bool:
        """Close the agent's input, and return whether it ends for that reason."""
        try:
            async with asyncio.timeout(_WAIT_SEC):
                await self._process.close_stdin()
                await self._process.wait()
        except (TimeoutError, OSError):
            return False
        return True

    async def _handle(self, method: str, params: Json, is_notification: bool) -> Json:
        if method != "session/request_permission":
            raise self._request_error.method_not_found(method)
        try:
            return await self._permission(params)
        except Exception as error:
            self.fail(error)
            raise self._request_error.internal_error() from None

    async def _drain(self) -> None:
        """Read standard error for as long as there is any: an agent with a full pipe stands still."""
        with contextlib.suppress(OSError, SandboxError):
            while data := await self._process.read_stderr():
                self._tail = (self._tail + data)[-_TAIL_BYTES:]
                self._note(data)
                # A pipe that is never empty never makes its reader wait.
                await asyncio.sleep(0)

    def _note(self, data: bytes) -> None:
        try:
            self._log(data)
        except Exception as error:
            self.fail(error)


def _told(message: str, data: Json) -> str:
    """Return an error's text with what its details add."""
    if data in (None, "", [], {}):
        return message
    more = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return message if more in message else f"{message}: {more}"
