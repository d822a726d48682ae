"""Connections that the daemon hands over after the request: byte streams of a program, or a long answer.

The SDK is not used here: its sockets skip what its reader has already buffered, which loses a program's first output.
Encrypted ones can close their sending half, which asyncio's own cannot: a program's standard input ends when the sender
has no more, and its output goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator
from typing import Any, BinaryIO
from urllib.parse import urlencode

from pytest_benchflow.core.process import keep_from_forks
from pytest_benchflow.sandboxes.docker.client import Address, EngineError, Unreachable

_CHUNK = 1 << 16


async def open_tls(
    host: str, port: int, context: ssl.SSLContext, *, limit: int
) -> tuple[asyncio.StreamReader, TlsWriter]:
    """Connect and shake hands; OSError says why that failed."""
    reader, raw = await asyncio.open_connection(host, port)
    writer = TlsWriter(reader, raw, context, host, limit)
    try:
        await writer.handshake()
    except BaseException:
        writer.abort()
        raise
    return writer.plain, writer


class TlsWriter:
    """Encrypts what is written, and decrypts what comes into `plain`; a slow reader of that slows the sender down."""

    def __init__(
        self, reader: asyncio.StreamReader, raw: asyncio.StreamWriter, context: ssl.SSLContext, host: str, limit: int
    ) -> None:
        self._reader = reader
        self._raw = raw
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._pump: asyncio.Task[None] | None = None
        self.plain = asyncio.StreamReader(limit=limit)
        self.plain.set_transport(self)  # type: ignore[arg-type]

    async def handshake(self) -> None:
        """Agree on keys, and begin to read."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                await self._receive()
            else:
                break
        self._flush()
        self._pump = asyncio.create_task(self._run())

    def write(self, data: bytes) -> None:
        """Send bytes, some time."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    async def drain(self) -> None:
        """Wait while the other side is slow."""
        await self._raw.drain()

    def write_eof(self) -> None:
        """Say goodbye, and read on."""
        # It also wants to hear the other side's goodbye, which comes when that has no more to say.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()

    def is_closing(self) -> bool:
        """Return whether nothing can be sent any more."""
        return self._raw.is_closing()

    def get_extra_info(self, name: str) -> Any:
        """Tell about the connection below."""
        return self._raw.get_extra_info(name)

    @property
    def transport(self) -> TlsWriter:
        """What drops the connection, as in asyncio's own streams."""
        return self

    def close(self) -> None:
        """Let go of the connection once all is sent; idempotent."""
        if self._pump is not None:
            self._pump.cancel()
        self._raw.close()

    def abort(self) -> None:
        """Drop the connection; idempotent."""
        if self._pump is not None:
            self._pump.cancel()
        self._raw.transport.abort()

    def pause_reading(self) -> None:
        """Wait for the reader."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Go on reading."""
        self._may_read.set()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._raw.write(data)

    async def _receive(self) -> None:
        if data := await self._reader.read(_CHUNK):
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _run(self) -> None:
        try:
            while self._decrypt():
                await self._may_read.wait()
                await self._receive()
        except OSError as error:
            self.plain.set_exception(error)
        else:
            self.plain.feed_eof()

    def _decrypt(self) -> bool:
        """Hand on what has come; False at the end."""
        try:
            while piece := self._tls.read(_CHUNK):
                self.plain.feed_data(piece)
        except ssl.SSLWantReadError:
            self._flush()
            return True
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        return False


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
        async for piece in self._chunks():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line
        if rest:
            yield rest

    def close(self) -> None:
        """Drop the connection with whatever is not sent yet; idempotent."""
        self._writer.transport.abort()

    async def _chunks(self) -> AsyncIterator[bytes]:
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
        header = f"POST {path}{'?' + urlencode(query) if query else ''} HTTP/1.1\r\nHost: docker\r\n"
        header += f"Content-Type: {kind}\r\nContent-Length: {size}\r\n"
        # Never `Connection: close`: the engine would not notice a dropped connection and build on.
        header += "Connection: Upgrade\r\nUpgrade: tcp\r\n" if upgrade else ""
        writer.write(header.encode() + b"\r\n" + content)
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
    header = await reader.readuntil(b"\r\n\r\n")
    first, *rest = header.decode("latin-1").split("\r\n")
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
