"""Lets programs in sandboxes reach the outside, as far as their network allows, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from pytest_benchflow.core.network import Endpoint, Network, parse_address
from pytest_benchflow.core.process import keep_from_forks
from pytest_benchflow.sandboxes.helpers import UnreachedHosts
from pytest_benchflow.sandboxes.network.dial import BUFFER_BYTES, Dialer, RefusedError, Stream

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.network import dns

#: Connections of one sandbox at a time; more wait in the kernel's queue.
CONNECTIONS = 128
_QUESTIONS = 32
_LONGEST_MESSAGE = 4096
_NAME_SERVER_TIMEOUT_SEC = 5.0
#: Stand-ins for the addresses of hosts, from a range that is nobody's.
_STAND_INS = ipaddress.ip_network("198.18.0.0/15")
_NAMES = 20_000
_HOSTS_TOLD = 20
_END_TIMEOUT_SEC = 5.0
_SO_ORIGINAL_DST = 80
_RESET = struct.pack("ii", 1, 0)

Handler = Callable[[socket.socket], Awaitable[None]]


class Forwarder:
    """Serves the sandboxes of one backend; its thread starts with the first of them."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.dialer = Dialer()

    def open(self, sockets: Mapping[str, socket.socket], network: Network, *, peer: str | None = None) -> Exit:
        """Serve what programs of one sandbox send to these sockets, which are closed with the exit.

        With `peer` only connections from that address are served: others could reach the sockets too.
        """
        if self._loop is None:
            # What is downloaded here must not slow down the loop that rollouts run in.
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="benchflow-network", daemon=True)
            self._thread.start()
        return Exit(self._loop, self.dialer, sockets, network, peer)

    def close(self) -> None:
        """End the thread; every exit was closed before."""
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _end_all() -> None:
    await _end(asyncio.all_tasks() - {asyncio.current_task()})


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_END_TIMEOUT_SEC)
    # The loop closes sockets on its next turn.
    await asyncio.sleep(0)


class Exit:
    """The way out of one sandbox; what it does happens in the forwarder's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dialer: Dialer,
        sockets: Mapping[str, socket.socket],
        network: Network,
        peer: str | None,
    ) -> None:
        self._peer = peer
        self._loop = loop
        self._dialer = dialer
        self._network = network
        self._refused: dict[str, None] = {}
        self._failed: dict[str, None] = {}
        self._names = StandIns()
        self._servers: list[asyncio.Task[None]] = []
        self._sockets: list[socket.socket] = []
        self._open: dict[asyncio.Task[None], tuple[str, int] | None] = {}
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._is_closed = False
        handlers: dict[str, Handler] = {"connections": self._lead_on, "proxy": self._serve_proxy}
        for kind, sock in sockets.items():
            if kind == "names":
                self._call(self._start, sock, self._answer_questions)
            else:
                self._call(self._start, sock, self._accept, handlers[kind])

    @property
    def unreached(self) -> UnreachedHosts:
        """The hosts that programs asked for and did not reach."""
        return UnreachedHosts(tuple(self._refused), tuple(self._failed))

    async def set_network(self, network: Network) -> None:
        """Allow what `network` does from now on; connections that it does not allow are cut."""
        done = asyncio.run_coroutine_threadsafe(self._apply(network), self._loop)
        await asyncio.wrap_future(done)

    def forward(self, sock: socket.socket, endpoint: Endpoint) -> None:
        """Lead connections to a socket on to a server of this machine, whenever the network grants that."""

        async def lead(client: socket.socket) -> None:
            await self._relay(client, endpoint.host, endpoint.port)

        self._call(self._start, sock, self._accept, lead)

    async def aclose(self) -> None:
        """Cut every connection and close the sockets; idempotent."""
        if not self._is_closed and not self._loop.is_closed():
            self._is_closed = True
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(), self._loop))

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        # A loop that is closed has no exits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _start(self, sock: socket.socket, serve: Callable[..., Awaitable[None]], *arguments: object) -> None:
        sock.setblocking(False)
        keep_from_forks(sock)
        self._sockets.append(sock)
        self._servers.append(asyncio.ensure_future(_run(serve, sock, *arguments)))

    async def _close(self) -> None:
        await _end((*self._servers, *self._open))
        for sock in self._sockets:
            sock.close()

    async def _apply(self, network: Network) -> None:
        self._network = network
        for task, place in list(self._open.items()):
            if place is not None and not self._permits(*place):
                task.cancel()

    def _permits(self, host: str, port: int) -> bool:
        return self._network.grants(host, port) or self._network.allows(host)

    def _note_refused(self, host: str) -> None:
        if len(self._refused) < _HOSTS_TOLD:
            self._refused[host] = None

    def _note_failed(self, host: str) -> None:
        # A name of one word is the machine's own, or a guess.
        if "." in host and len(self._failed) < _HOSTS_TOLD:
            self._failed[host] = None

    async def _accept(self, sock: socket.socket, handle: Handler) -> None:
        while True:
            await self._slots.acquire()
            try:
                client, address = await self._loop.sock_accept(sock)
            except BaseException:
                self._slots.release()
                raise
            if self._peer not in (None, address[0]):
                self._slots.release()
                client.close()
                continue
            task = asyncio.ensure_future(_run(handle, client))
            self._open[task] = None
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._open[task]
        self._slots.release()

    async def _lead_on(self, client: socket.socket) -> None:
        """Lead a connection to where it was going."""
        port, packed = struct.unpack("!2xH4s8x", client.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16))
        address = socket.inet_ntoa(packed)
        await self._relay(client, self._names.name_of(address) or address, port)

    async def _relay(self, client: socket.socket, host: str, port: int) -> None:
        try:
            server = await self.connect(host, port)
        except BaseException:
            with contextlib.suppress(OSError):
                # A program that waits for an answer should know at once that none will come.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            raise
        with closing(server):
            stream = await asyncio.open_connection(sock=client, limit=BUFFER_BYTES)
            with closing(stream):
                await relay(stream, server)

    async def connect(self, host: str, port: int, *, tunnel: bool = True) -> Stream:
        """Connect to a server for the connection that is served now; RefusedError if the network forbids it."""
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = (host, port)
        try:
            if not self._permits(host, port):
                raise RefusedError(f"the network of this sandbox does not allow {host}")
            server = await self._dialer.connect(host, port, self._network, tunnel=tunnel)
        except RefusedError:
            self._note_refused(host)
            raise
        except OSError:
            self._note_failed(host)
            raise
        self._failed.pop(host, None)
        return server

    async def _serve_proxy(self, client: socket.socket) -> None:
        from pytest_benchflow.sandboxes.network.proxy import serve_proxy

        stream = await asyncio.open_connection(sock=client, limit=BUFFER_BYTES)
        with closing(stream):
            await serve_proxy(stream, self.connect, self._dialer)

    async def _answer_questions(self, sock: socket.socket) -> None:
        slots = asyncio.Semaphore(_QUESTIONS)
        while True:
            message, sender = await self._loop.sock_recvfrom(sock, _LONGEST_MESSAGE)
            await slots.acquire()
            task = asyncio.ensure_future(_run(self._answer, sock, message, sender))
            self._servers.append(task)
            task.add_done_callback(self._servers.remove)
            task.add_done_callback(lambda _: slots.release())

    async def _answer(self, sock: socket.socket, message: bytes, sender: tuple[str, int]) -> None:
        from pytest_benchflow.sandboxes.network import dns

        try:
            question = dns.parse(message)
        except ValueError:
            return
        await self._loop.sock_sendto(sock, await self._look_up(question), sender)

    async def _look_up(self, question: dns.Question) -> bytes:
        from pytest_benchflow.sandboxes.network import dns

        name = question.name.lower()
        if question.kind == dns.PTR:
            known = self._names.name_of(_address_in(name))
            return dns.answer(question, dns.NO_ERROR if known else dns.NO_SUCH_NAME, name=known)
        if not any(endpoint.host == name for endpoint in self._network.endpoints) and not self._network.allows(name):
            self._note_refused(name)
            return dns.answer(question, dns.REFUSED)
        try:
            if question.kind not in (dns.A, dns.AAAA):
                return await _ask_name_server(self._loop, question.message)
            if not await self._dialer.knows(name):
                self._note_failed(name)
                return dns.answer(question, dns.NO_SUCH_NAME)
            # The stand-in is of the older kind; the server itself may have whichever address it likes.
            return dns.answer(question, address=self._names.address_of(name) if question.kind == dns.A else None)
        except OSError:
            self._note_failed(name)
            return dns.answer(question, dns.SERVER_FAILURE)


class StandIns:
    """The addresses that stand for names in one sandbox: a connection to one tells which name was meant."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def address_of(self, name: str) -> str:
        """Return the address that stands for a name; OSError if there are too many."""
        if name not in self._addresses:
            if len(self._addresses) == _NAMES:
                raise OSError("too many names")
            address = str(_STAND_INS[len(self._addresses) + 1])
            self._addresses[name] = address
            self._names[address] = name
        return self._addresses[name]

    def name_of(self, address: str) -> str | None:
        """Return the name that an address stands for."""
        return self._names.get(address)


async def relay(client: Stream, server: Stream) -> None:
    """Pass on what both sides send until both have ended, or one breaks."""
    async with asyncio.TaskGroup() as both:
        both.create_task(_copy(client[0], server[1]))
        both.create_task(_copy(server[0], client[1]))


@contextlib.contextmanager
def closing(stream: Stream) -> Iterator[None]:
    """Close a connection at the end: with all that was written to it, unless the work with it failed."""
    try:
        yield
    except BaseException:
        stream[1].transport.abort()
        raise
    finally:
        stream[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(BUFFER_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _run(work: Callable[..., Awaitable[None]], *arguments: object) -> None:
    """Do some work whose failure only its other end should notice."""
    with contextlib.suppress(asyncio.CancelledError):
        try:
            await work(*arguments)
        except* OSError:
            pass


async def _ask_name_server(loop: asyncio.AbstractEventLoop, message: bytes) -> bytes:
    """Pass a question on that only a real server can answer."""
    from pytest_benchflow.sandboxes.network import dns

    for server in dns.name_servers():
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NAME_SERVER_TIMEOUT_SEC):
                    await loop.sock_connect(sock, (server, 53))
                    await loop.sock_sendall(sock, message)
                    return await loop.sock_recv(sock, _LONGEST_MESSAGE)
    raise OSError("no name server answers")


def _address_in(name: str) -> str:
    """Return the address whose name is asked for."""
    parts = name.removesuffix(".in-addr.arpa").split(".")
    address = ".".join(reversed(parts))
    return address if parse_address(address) else ""
