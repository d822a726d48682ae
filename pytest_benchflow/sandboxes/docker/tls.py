"""Encrypted connections whose sending half can be closed, which asyncio's own cannot.

A program's standard input ends when the sender has no more, and its output goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

_CHUNK = 1 << 16


async def open_tls(
    host: str, port: int, context: ssl.SSLContext, *, limit: int
) -> tuple[asyncio.StreamReader, TlsWriter]:
    """Connect and shake hands; OSError says why that failed."""
    reader, raw = await asyncio.open_connection(host, port)
    writer = TlsWriter(reader, raw, context, host, limit)
    try:
        await writer.shake_hands()
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

    async def shake_hands(self) -> None:
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
        """Say whether nothing can be sent any more."""
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
