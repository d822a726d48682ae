"""The sandbox's own network: a loopback always, and with access to the outside an interface that leads to the runner.

Nothing really leaves the namespace. Packet rules lead every TCP connection and every question for a name to sockets
that were opened here and that the runner holds: it decides, and connects in place of the sandbox. Where the kernel has
no such rules the runner is an HTTP proxy that programs find through the usual variables.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

from . import netlink
from .wire import ADDRESS, PROXY_PORT

#: In the network of ADDRESS, so that nobody takes it for something else.
PREFIX, NAME_SERVER = 24, "10.0.2.3"
#: Ports that were never assigned to anything: no task has a server there.
CONNECTIONS_PORT, NAMES_PORT = 4, 4
_BACKLOG = 128

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
#: As in containers: every user may take low ports and ask whether a host answers.
_SETTINGS = {"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647"}
_TCP, _UDP, _NAMES = 6, 17, 53


def raise_loopback() -> None:
    """Bring `lo` up in a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
    for name, value in _SETTINGS.items():
        with contextlib.suppress(OSError), open(f"/proc/sys/net/ipv4/{name}", "w") as file:
            file.write(value)


def open_exits(*, rules: bool) -> dict[str, socket.socket]:
    """Return the sockets through which the runner serves programs that want out, by what they are for."""
    exits = {"proxy": listen(PROXY_PORT)}
    if not rules:
        return exits
    try:
        _lead_to_exits()
    except OSError:
        # Of the kernel's parts only some may be there.
        return exits
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    names.bind(("127.0.0.1", NAMES_PORT))
    return {**exits, "connections": listen(CONNECTIONS_PORT), "names": names}


def listen(port: int) -> socket.socket:
    """Listen on a port of the sandbox's loopback."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(_BACKLOG)
    return sock


def _lead_to_exits() -> None:
    outside = netlink.is_not_for(b"\x7f") + netlink.is_not_for(socket.inet_aton(ADDRESS))
    rules = netlink.Rules("sandbox")
    rules.add_chain("lead", "nat", -100)
    rules.add_rule("lead", outside, netlink.is_protocol(_TCP), netlink.redirect(CONNECTIONS_PORT))
    rules.add_rule(
        "lead", outside, netlink.is_protocol(_UDP), netlink.is_for_port(_NAMES), netlink.redirect(NAMES_PORT)
    )
    rules.add_chain("refuse", "filter", 0)
    rules.add_rule("refuse", outside, netlink.reject())
    rules.install()
    # Last, because a way that leads nowhere would keep programs waiting which otherwise know at once.
    link = _add_interface()
    netlink.add_address(link, ADDRESS, PREFIX)
    netlink.add_default_route(link)


def _add_interface() -> int:
    try:
        return netlink.add_link("eth0", "dummy")
    except OSError:
        # The other end of the pair has no address: whatever comes there is dropped.
        return netlink.add_link("eth0", "veth")
