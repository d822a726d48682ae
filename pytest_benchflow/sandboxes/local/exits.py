"""The way out of one machine: nothing is loaded or started for it before a program wants to use it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from pytest_benchflow.core.network import Endpoint, Network
from pytest_benchflow.sandboxes.helpers import UnreachedHosts
from pytest_benchflow.sandboxes.local.guest.wire import ADDRESS, PROXY_PORT

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.network import Exit, Forwarder


class Exits:
    """Watches the sockets that programs are led to, and hands them to the forwarder when the first one comes."""

    def __init__(
        self, sockets: Mapping[str, socket.socket], network: Network, forwarder: Callable[[], Forwarder]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = dict(sockets)
        self._network = network
        self._forwarder = forwarder
        self._exit: Exit | None = None
        self._forwarded: set[Endpoint] = set()
        for sock in self._sockets.values():
            self._loop.add_reader(sock, self._open)

    def variables(self, hostname: str) -> dict[str, str]:
        """Return how programs find the way out where they cannot just go, or where this machine has a proxy."""
        if not self._sockets or ("connections" in self._sockets and not self._has_proxy()):
            return {}
        from pytest_benchflow.sandboxes.network import proxy_variables

        return proxy_variables("127.0.0.1", PROXY_PORT, hostname, ADDRESS)

    def _has_proxy(self) -> bool:
        named = any(value for name, value in os.environ.items() if name.lower().endswith("_proxy"))
        return named and self._forwarder().dialer.has_proxy

    @property
    def unreached(self) -> UnreachedHosts:
        """The hosts that programs asked for in vain."""
        return self._exit.unreached if self._exit else UnreachedHosts()

    async def set_network(self, network: Network, listen: Callable[[int], Awaitable[socket.socket]]) -> None:
        """Allow what `network` does from now on, also servers of this machine, on ports that `listen` opens inside."""
        self._network = network
        for endpoint in network.endpoints:
            if endpoint.is_loopback and endpoint not in self._forwarded:
                sock = await listen(endpoint.port)
                self._open().forward(sock, endpoint)
                self._forwarded.add(endpoint)
        if self._exit is not None:
            await self._exit.set_network(network)

    def _open(self) -> Exit:
        if self._exit is None:
            self._unwatch()
            self._exit = self._forwarder().open(self._sockets, self._network)
        return self._exit

    def _unwatch(self) -> None:
        if not self._loop.is_closed():
            for sock in self._sockets.values():
                self._loop.remove_reader(sock)

    async def aclose(self) -> None:
        """Cut every connection and close the sockets; idempotent."""
        if self._exit is not None:
            await self._exit.aclose()
            return
        self._unwatch()
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()
