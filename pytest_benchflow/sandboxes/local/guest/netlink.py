"""Netlink, the kernel's interface to links, addresses, routes and packet rules, as far as a sandbox needs it."""

from __future__ import annotations

import os
import socket
import struct

_NETLINK_NETFILTER = 12
_REQUEST, _ACKNOWLEDGE, _CREATE = 0x1, 0x4, 0x400
_APPEND = 0x800
_ERROR = 0x2
_NESTED = 0x8000
_TIMEOUT_SEC = 10.0

_NEW_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 20, 24
_NFTABLES = 10
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE = (_NFTABLES << 8 | number for number in (0, 3, 6))
_IPV4_RULES = 2


def attribute(kind: int, value: bytes) -> bytes:
    """Return one attribute, padded to the boundary at which the next may begin."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Return an attribute whose value is a list of others."""
    return attribute(kind | _NESTED, b"".join(attributes))


def text(kind: int, value: str) -> bytes:
    """Return an attribute with a name."""
    return attribute(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    """Return an attribute with a number as packet rules take it."""
    return attribute(kind, struct.pack("!i", value))


def _message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body


def _exchange(family: int, data: bytes, answers: int, what: str) -> None:
    """Send messages and wait for that many acknowledgements; OSError tells which of them was refused."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family) as sock:
        sock.settimeout(_TIMEOUT_SEC)
        sock.send(data)
        while answers > 0:
            received = sock.recv(65536)
            while len(received) >= 16:
                length, kind = struct.unpack_from("=IH", received)
                if kind == _ERROR:
                    error = -struct.unpack_from("=i", received, 16)[0]
                    if error:
                        raise OSError(error, f"{what}: {os.strerror(error)}")
                    answers -= 1
                received = received[(length + 3) & ~3 :]


def add_link(name: str, kind: str) -> int:
    """Make a network interface, bring it up, and return its number."""
    up = 1
    body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 0, up, up) + text(3, name) + nested(18, text(1, kind))
    _exchange(socket.NETLINK_ROUTE, _message(_NEW_LINK, _REQUEST | _ACKNOWLEDGE | _CREATE, 1, body), 1, f"add {kind}")
    return socket.if_nametoindex(name)


def add_address(link: int, address: str, prefix: int) -> None:
    """Give an interface an address of the network of that prefix."""
    packed = socket.inet_aton(address)
    body = struct.pack("=BBBBi", socket.AF_INET, prefix, 0, 0, link) + attribute(1, packed) + attribute(2, packed)
    _exchange(
        socket.NETLINK_ROUTE, _message(_NEW_ADDRESS, _REQUEST | _ACKNOWLEDGE | _CREATE, 1, body), 1, f"add {address}"
    )


def add_default_route(link: int) -> None:
    """Send what is for nobody here to an interface."""
    main, boot, universe, unicast = 254, 3, 0, 1
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, main, boot, universe, unicast, 0)
    body += attribute(4, struct.pack("=i", link))
    _exchange(
        socket.NETLINK_ROUTE, _message(_NEW_ROUTE, _REQUEST | _ACKNOWLEDGE | _CREATE, 1, body), 1, "add default route"
    )


class Rules:
    """Packet rules for what programs send, installed together or not at all."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._bodies = [(_NEW_TABLE, 0, text(1, table))]

    def add_chain(self, name: str, kind: str, priority: int) -> None:
        """Add a chain that all packets of this namespace's programs pass."""
        sent_by_programs = 3
        hook = nested(4, number(1, sent_by_programs), number(2, priority))
        self._bodies.append((_NEW_CHAIN, 0, text(1, self._table) + text(3, name) + hook + text(7, kind)))

    def add_rule(self, chain: str, *expressions: bytes) -> None:
        """Add a rule: conditions first, then what happens to a packet that meets all of them."""
        body = text(1, self._table) + text(2, chain) + nested(4, *expressions)
        self._bodies.append((_NEW_RULE, _APPEND, body))

    def install(self) -> None:
        """Hand the rules to the kernel; OSError if it has none of that kind."""
        data = _message(_BATCH_BEGIN, _REQUEST, 0, struct.pack("!BBH", 0, 0, _NFTABLES))
        family = struct.pack("!BBH", _IPV4_RULES, 0, 0)
        for sequence, (kind, flags, body) in enumerate(self._bodies, 1):
            data += _message(kind, _REQUEST | _ACKNOWLEDGE | _CREATE | flags, sequence, family + body)
        data += _message(_BATCH_END, _REQUEST, len(self._bodies) + 1, struct.pack("!BBH", 0, 0, _NFTABLES))
        _exchange(_NETLINK_NETFILTER, data, len(self._bodies), "add packet rules")


_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_EQUAL, _UNEQUAL = 0, 1
_REGISTER = 1


def _expression(name: str, *attributes: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, *attributes))


def _compare(operator: int, value: bytes) -> bytes:
    return _expression("cmp", number(1, _REGISTER), number(2, operator), nested(3, attribute(1, value)))


def _load(base: int, offset: int, length: int) -> bytes:
    return _expression("payload", number(1, _REGISTER), number(2, base), number(3, offset), number(4, length))


def is_not_for(address: bytes) -> bytes:
    """Match packets whose destination does not begin with these bytes."""
    destination = 16
    return _load(_NETWORK_HEADER, destination, len(address)) + _compare(_UNEQUAL, address)


def is_protocol(protocol: int) -> bytes:
    """Match packets of a transport protocol."""
    transport_protocol = 16
    return _expression("meta", number(1, _REGISTER), number(2, transport_protocol)) + _compare(
        _EQUAL, bytes([protocol])
    )


def is_for_port(port: int) -> bytes:
    """Match packets by their destination port."""
    return _load(_TRANSPORT_HEADER, 2, 2) + _compare(_EQUAL, struct.pack("!H", port))


def redirect(port: int) -> bytes:
    """Lead packets to a port of this namespace's loopback; `SO_ORIGINAL_DST` tells where they were going."""
    value = nested(2, attribute(1, struct.pack("!H", port)))
    return _expression("immediate", number(1, _REGISTER), value) + _expression("redir", number(1, _REGISTER))


def reject() -> bytes:
    """Refuse packets at once, so that nobody waits for an answer."""
    port_unreachable = 3
    return _expression("reject", number(1, 0), attribute(2, bytes([port_unreachable])))
