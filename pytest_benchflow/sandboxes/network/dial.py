"""Connections to the outside on behalf of a sandbox: never to this machine itself, through its proxy if it has one."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pytest_benchflow.core.network import Network, parse_address

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CONNECT_TIMEOUT_SEC = 30.0
RESOLVE_TIMEOUT_SEC = 20.0
#: How much of a stream is held for whoever reads more slowly than is written.
BUFFER_BYTES = 256 * 1024
_LONGEST_HEAD = 64 * 1024
#: How containers call the machine that they run on.
_THIS_MACHINE = "host.docker.internal"


class RefusedError(OSError):
    """A host that the sandbox may not reach."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A proxy of this machine; its password stays here."""

    host: str
    port: int
    authorization: str | None = None

    @classmethod
    def of_url(cls, url: str) -> Upstream | None:
        """Return the proxy that a variable names; None for kinds that are not HTTP."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            return None
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return cls(parts.hostname, parts.port or 80, authorization)


class Dialer:
    """Connects to hosts as this machine would."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._proxies = _proxies(environ)
        self._without_proxy = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").replace(",", " ").split()

    @property
    def has_proxy(self) -> bool:
        """Whether this machine reaches others through a proxy."""
        return bool(self._proxies)

    def upstream(self, host: str, port: int) -> Upstream | None:
        """Return the proxy that leads to a server; None if it is reached without."""
        kind = "http" if port == 80 else "https"
        if kind not in self._proxies or any(_is_under(host, domain) for domain in self._without_proxy):
            return None
        return self._proxies[kind]

    async def knows(self, name: str) -> bool:
        """Return whether a name leads anywhere; OSError if that cannot be told now."""
        if self.upstream(name, 443) is not None:
            # Behind a proxy only that knows the names of others.
            return True
        try:
            return bool(await _resolve(name, None))
        except socket.gaierror as error:
            if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
                return False
            raise

    async def connect(self, host: str, port: int, network: Network, *, tunnel: bool = True) -> Stream:
        """Connect to a server that the network allows; RefusedError if it leads where nobody may go.

        Without a tunnel a proxy of this machine is what one is connected to, for a request that it understands.
        """
        granted = network.grants(host, port)
        if not granted and (upstream := self.upstream(host, port)) is not None:
            async with asyncio.timeout(CONNECT_TIMEOUT_SEC):
                return await _through(upstream, host, port, tunnel=tunnel)
        if granted and host == _THIS_MACHINE:
            host = "127.0.0.1"
        addresses = await _resolve(host, port)
        allowed = [each for each in addresses if granted or not (is_own(each) or network.blocks(each))]
        if not allowed:
            raise RefusedError(f"{host} leads to this machine itself, or to an address that is blocked")
        return await _first(allowed, port)


async def _resolve(host: str, port: int | None) -> list[str]:
    if parse_address(host) is not None:
        return [host]
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(RESOLVE_TIMEOUT_SEC):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def _first(addresses: list[str], port: int) -> Stream:
    """Connect to the first address that answers."""
    failure: OSError = OSError("no address")
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SEC / len(addresses)):
                return await asyncio.open_connection(address, port, limit=BUFFER_BYTES)
        except OSError as error:
            failure = error
    raise failure


async def _through(upstream: Upstream, host: str, port: int, *, tunnel: bool) -> Stream:
    """Have a proxy connect to a server."""
    reader, writer = await asyncio.open_connection(upstream.host, upstream.port, limit=BUFFER_BYTES)
    if not tunnel:
        return reader, writer
    try:
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        lines += [f"Proxy-Authorization: {upstream.authorization}"] if upstream.authorization else []
        writer.write("\r\n".join([*lines, "", ""]).encode())
        status, *_ = (await read_head(reader)).split(b"\r\n")
        if b" 200 " not in status + b" ":
            raise OSError(f"the proxy {upstream.host} answered {status.decode('latin-1')!r}")
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """Read the lines before the body of a request or of an answer."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise OSError("no complete head") from error
    if len(head) > _LONGEST_HEAD:
        raise OSError("the head is too long")
    return head


def is_own(address: str) -> bool:
    """Return whether an address is this machine's own, or one that only its closest surroundings give a meaning."""
    parsed = parse_address(address)
    if parsed is None:
        return False
    if parsed.is_loopback or parsed.is_unspecified or parsed.is_multicast or parsed.is_link_local:
        # At a link-local address clouds give machines their credentials.
        return True
    mapped = getattr(parsed, "ipv4_mapped", None)
    if mapped is not None:
        return is_own(str(mapped))
    # Nothing is sent: the kernel only chooses from where, which is the address itself if it is one of ours.
    with socket.socket(socket.AF_INET if parsed.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return False
        return parse_address(probe.getsockname()[0]) == parsed


def _is_under(host: str, domain: str) -> bool:
    """Return whether a host is one that `no_proxy` names: itself, or the domain that it is in."""
    domain = domain.removeprefix("*").removeprefix(".").lower()
    return not domain or host == domain or host.endswith(f".{domain}")


def _proxies(environ: Mapping[str, str]) -> dict[str, Upstream]:
    everywhere = environ.get("all_proxy") or environ.get("ALL_PROXY")
    found = {}
    for kind in ("http", "https"):
        url = environ.get(f"{kind}_proxy") or environ.get(f"{kind}_proxy".upper()) or everywhere
        if url and (upstream := Upstream.of_url(url)) is not None:
            found[kind] = upstream
    return found
