"""The HTTP proxy that programs of a sandbox find through the usual variables."""

from __future__ import annotations

import asyncio
from typing import Protocol
from urllib.parse import urlsplit

from pytest_benchflow.sandboxes.network.dial import BUFFER_BYTES, Dialer, RefusedError, Stream, Upstream, read_head

_HEAD_TIMEOUT_SEC = 30.0
_END_TIMEOUT_SEC = 5.0
#: Headers between a client and its proxy.
_OF_THE_PROXY = ("proxy-connection", "proxy-authorization", "connection", "keep-alive")


class Connect(Protocol):
    """Connects to a server that the sandbox may reach."""

    async def __call__(self, host: str, port: int, *, tunnel: bool) -> Stream:
        """Return the connection; RefusedError if it may not."""


#: The loopback, and domains that nobody else can have: tasks give them to servers of their own.
_OWN = ("localhost", "127.0.0.1", "::1", ".localhost", ".local", ".test")


def proxy_variables(address: str, port: int, *own: str) -> dict[str, str]:
    """Return the variables that lead programs to a proxy, in both spellings that are in use.

    `own` are the sandbox's names and addresses, whose servers no proxy reaches.
    """
    url = f"http://{address}:{port}"
    values = {"http_proxy": url, "https_proxy": url, "no_proxy": ",".join([*_OWN, *own])}
    # Node follows the variables only if told to.
    return {**values, **{name.upper(): value for name, value in values.items()}, "NODE_USE_ENV_PROXY": "1"}


async def serve_proxy(client: Stream, connect: Connect, dialer: Dialer) -> None:
    """Serve one connection of a client: a tunnel, or one request for a plain page."""
    from pytest_benchflow.sandboxes.network.forwarder import closing, relay

    try:
        async with asyncio.timeout(_HEAD_TIMEOUT_SEC):
            head = await read_head(client[0])
        method, target, version = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        host, port = _server(method, target)
    except (OSError, ValueError):
        await _refuse(client, "400 Bad Request", "this is an HTTP proxy")
        return
    try:
        server = await connect(host, port, tunnel=method == "CONNECT")
    except RefusedError as error:
        await _refuse(client, "403 Forbidden", str(error))
        return
    except OSError as error:
        await _refuse(client, "502 Bad Gateway", f"{host}:{port}: {error.strerror or error or 'no answer in time'}")
        return
    with closing(server):
        if method == "CONNECT":
            client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            server[1].write(_request(head, method, target, version, dialer.upstream(host, port)))
        await relay(client, server)


def _server(method: str, target: str) -> tuple[str, int]:
    """Return the server that a request is for; ValueError if it names none."""
    parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
    if parts.hostname is None or (method != "CONNECT" and parts.scheme != "http"):
        raise ValueError(target)
    return parts.hostname, parts.port or (443 if method == "CONNECT" else 80)


def _request(head: bytes, method: str, target: str, version: str, upstream: Upstream | None) -> bytes:
    """Return the head as the server, or the next proxy, wants it; the connection serves this request only."""
    if upstream is None:
        parts = urlsplit(target)
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")[1:]
    kept = [line for line in lines if line.partition(":")[0].strip().lower() not in _OF_THE_PROXY]
    if upstream is not None and upstream.authorization:
        kept.append(f"Proxy-Authorization: {upstream.authorization}")
    return "\r\n".join([f"{method} {target} {version}", *kept, "Connection: close", "", ""]).encode("latin-1")


async def _refuse(client: Stream, status: str, reason: str) -> None:
    reader, writer = client
    body = f"{reason}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    await writer.drain()
    writer.write_eof()
    # The client ends the connection once it has read why.
    async with asyncio.timeout(_END_TIMEOUT_SEC):
        while await reader.read(BUFFER_BYTES):
            pass
