"""Take JSON-RPC messages out of whatever an agent prints: banners, log lines and glued objects are all legal noise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from pytest_benchflow.events import Json

Message: TypeAlias = dict[str, Json]

#: Where objects glued to other text are looked for: a longer line, or one with more braces, is not worth the time.
_SALVAGE_BYTES = 1 << 20
_SALVAGE_TRIES = 64
#: Requests that only a client sends; seen on the agent's output they are an echo of ours.
_ECHOES = frozenset({"initialize", "authenticate", "session/new", "session/prompt", "session/cancel"})


@dataclass(frozen=True, slots=True)
class Noise:
    """Output that is no message, for the agent's log."""

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
    found: list[Message] = []
    if stripped[:1] in (b"{", b"["):
        value = _parse(stripped)
        found = [*_salvage(stripped)] if value is _BROKEN else _messages(value)
    elif b'"jsonrpc"' in stripped:
        found = [*_salvage(stripped)]
    if found:
        yield from found
    else:
        yield Noise(line + end)


_BROKEN: Json = object()  # type: ignore[assignment]


def _no_number(_: str) -> None:
    """NaN and the infinities are no JSON: nothing that reads the trajectory could take them."""


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
