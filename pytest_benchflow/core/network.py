"""What a phase of a rollout may reach outside its sandbox, and whether a host is among it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

NetworkMode = Literal["public", "no-network", "allowlist", "denylist"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server by its host and port."""

    host: str
    port: int

    @classmethod
    def of_url(cls, url: str) -> Endpoint | None:
        """Return the server that a URL leads to; None if it names none."""
        try:
            parts = urlsplit(url)
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        except ValueError:
            return None
        return cls(parts.hostname, port) if parts.hostname and port else None

    @property
    def is_loopback(self) -> bool:
        """Whether it is a server of the very machine that asks."""
        address = parse_address(self.host)
        return self.host == "localhost" if address is None else address.is_loopback


@dataclass(frozen=True, slots=True)
class Network:
    """What may be reached; true unless that is nothing at all."""

    mode: NetworkMode = "public"
    allowed_hosts: tuple[str, ...] = ()
    """Names, `*.domain`, addresses and networks; only with an allow list."""
    blocked_hosts: tuple[str, ...] = ()
    blocked_urls: tuple[str, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    """Servers that may be reached whatever the mode says, those of this machine too: the agent's model."""

    def __bool__(self) -> bool:
        return self.mode != "no-network" or bool(self.endpoints)

    @property
    def leads_out(self) -> bool:
        """Whether more can be reached than servers of this machine."""
        return self.mode != "no-network" or not all(endpoint.is_loopback for endpoint in self.endpoints)

    @property
    def is_restricted(self) -> bool:
        """Whether some hosts may be reached and others not."""
        return bool(self) and self.mode != "public"

    def with_endpoints(self, endpoints: Iterable[Endpoint]) -> Network:
        """Return the same network with servers that may be reached in any case."""
        return replace(self, endpoints=tuple(dict.fromkeys((*self.endpoints, *endpoints))))

    def allows(self, host: str) -> bool:
        """Return whether a name or an address may be reached; a name is judged by names, an address by addresses."""
        match self.mode:
            case "public":
                return True
            case "no-network":
                return False
            case "allowlist":
                return _is_listed(host, self.allowed_hosts)
            case "denylist":
                # By its address a blocked host would be reached in spite of its name.
                return parse_address(host) is None and not _is_listed(host, self._blocked)

    def blocks(self, address: str) -> bool:
        """Return whether a name that leads to this address must not be reached after all."""
        return self.mode == "denylist" and _is_listed(address, self._blocked)

    @property
    def _blocked(self) -> tuple[str, ...]:
        return (*self.blocked_hosts, *map(_host_of_url, self.blocked_urls))

    def grants(self, host: str, port: int) -> bool:
        """Return whether a server may be reached although the mode, or its place on this machine, forbids it."""
        return Endpoint(normal_host(host), port) in self.endpoints


PUBLIC = Network()
NO_NETWORK = Network("no-network")


def parse_address(host: str) -> Address | None:
    """Return an address if it is one and not a name."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def normal_host(host: str) -> str:
    """Return the one spelling of a host."""
    return host.lower().removesuffix(".").removeprefix("[").removesuffix("]")


def _host_of_url(url: str) -> str:
    return urlsplit(url if "://" in url else f"//{url}").hostname or ""


def _is_listed(host: str, entries: Iterable[str]) -> bool:
    address = parse_address(host)
    name = normal_host(host)
    return any(_is_inside(address, entry) if address else _is_named(name, entry) for entry in entries)


def _is_inside(address: Address, entry: str) -> bool:
    try:
        return address in ipaddress.ip_network(entry)
    except ValueError:
        return False


def _is_named(name: str, entry: str) -> bool:
    entry = normal_host(entry)
    # A star stands for one or more labels, as users of firewalls and proxies expect.
    return name.endswith(entry[1:]) if entry.startswith("*.") else name == entry
