"""Connections that the daemon hands over after the request: byte streams of a program, or a long answer.

The SDK is not used here: its sockets skip what its reader has already buffered, which loses a program's first bytes,
and a thread that waits in one cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any, BinaryIO
from urllib.parse import urlencode

from pytest_benchflow.sandboxes.forks import keep_from_forks

from .address import Address
from .engine import EngineError, Unreachable
from .tls import TlsWriter, open_tls

Writer = asyncio.StreamWriter | TlsWriter
_LIMIT = 1 << 18
_HEAD_TIMEOUT_SEC = 180.0
_CONNECT_TIMEOUT_SEC = 20.0


class Connection:
    """An open connection, after the head of the daemon's answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: Writer, chunked: bool) -> None:
        self.reader = reader
        self._writer = writer
        self._chunked = chunked
        self._ended = False
        keep_from_forks(self)

    def fileno(self) -> int:
        """Return the descriptor of its socket, -1 once that is closed."""
        sock = self._writer.get_extra_info("socket")
        return -1 if sock is None else int(sock.fileno())

    async def write(self, data: bytes) -> None:
        """Send bytes, waiting while the other side is slow; BrokenPipeError if it has gone."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (ConnectionError, RuntimeError):
            raise BrokenPipeError("the connection is closed") from None

    def write_eof(self) -> None:
        """Close the sending half; idempotent."""
        if not self._ended and not self._writer.is_closing():
            self._ended = True
            self._writer.write_eof()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of a long answer as they come."""
        rest = b""
        async for piece in self._pieces():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line
        if rest:
            yield rest

    def close(self) -> None:
        """Drop the connection with whatever is not sent yet; idempotent."""
        self._writer.transport.abort()

    async def _pieces(self) -> AsyncIterator[bytes]:
        if not self._chunked:
            while data := await self.reader.read(_LIMIT):
                yield data
            return
        while size := int((await self.reader.readline()).split(b";")[0] or b"0", 16):
            yield (await self.reader.readexactly(size + 2))[:-2]


async def open_connection(
    address: Address,
    path: str,
    *,
    query: dict[str, str] | None = None,
    body: dict[str, Any] | None = None,
    file: BinaryIO | None = None,
    upgrade: bool = True,
) -> Connection:
    """POST a request and return its connection; EngineError if the daemon refuses it."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_SEC):
            reader, writer = await _connect(address)
    except (OSError, TimeoutError) as error:
        raise Unreachable(address, getattr(error, "strerror", None) or str(error) or "timed out") from None
    try:
        content = json.dumps(body).encode() if body is not None else b""
        kind = "application/json" if file is None else "application/x-tar"
        size = len(content) if file is None else os.fstat(file.fileno()).st_size
        head = f"POST {path}{'?' + urlencode(query) if query else ''} HTTP/1.1\r\nHost: docker\r\n"
        head += f"Content-Type: {kind}\r\nContent-Length: {size}\r\n"
        # Never `Connection: close`: the engine would not notice a dropped connection and build on.
        head += "Connection: Upgrade\r\nUpgrade: tcp\r\n" if upgrade else ""
        writer.write(head.encode() + b"\r\n" + content)
        if file is not None:
            await _send(file, writer)
        async with asyncio.timeout(_HEAD_TIMEOUT_SEC):
            return await _answer(reader, writer)
    except (OSError, asyncio.IncompleteReadError) as error:
        writer.close()
        raise Unreachable(address, str(error) or "connection closed") from None
    except BaseException:
        writer.close()
        raise


async def _connect(address: Address) -> tuple[asyncio.StreamReader, Writer]:
    if address.is_local:
        return await asyncio.open_unix_connection(address.socket_path, limit=_LIMIT)
    host, port = address.host_and_port
    if context := address.ssl_context():
        return await open_tls(host, port, context, limit=_LIMIT)
    return await asyncio.open_connection(host, port, limit=_LIMIT)


async def _send(file: BinaryIO, writer: Writer) -> None:
    while data := file.read(_LIMIT):
        writer.write(data)
        await writer.drain()


async def _answer(reader: asyncio.StreamReader, writer: Writer) -> Connection:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    status = int(first.split()[1])
    connection = Connection(reader, writer, chunked=fields.get("transfer-encoding") == "chunked")
    if status in (101, 200):
        return connection
    length = fields.get("content-length")
    text = await reader.readexactly(int(length)) if length else b"".join([line async for line in connection.lines()])
    raise EngineError(status, _message(text))


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"]).strip()
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace").strip() or "no reason given"
