"""What stands for the internet in tests: a proxy of this machine that answers for every host, but not for `gone.*`."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Iterator


class Outside:
    """Greets whoever reaches a host through it, and keeps who was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client: every host greets with its name."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            method, target, _ = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode().split(" ")
            host = target.removeprefix("http://").partition("/")[0].partition(":")[0]
            if host.startswith("gone."):
                writer.write(b"HTTP/1.1 502 no\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                return
            self.asked.append(host)
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 yes\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
            body = f"hello from {host}\n".encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()


@contextlib.asynccontextmanager
async def outside(address: str = "127.0.0.1") -> AsyncIterator[Outside]:
    """Be the internet for as long as the context lasts."""
    world = Outside()
    async with await asyncio.start_server(world.serve, address, 0) as server:
        world.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield world


@contextlib.contextmanager
def outside_of_a_run() -> Iterator[Outside]:
    """Be the internet for pytest runs that the test waits for."""
    began: queue.Queue[tuple[Outside, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def main() -> None:
        async with outside() as world:
            end = asyncio.Event()
            began.put((world, asyncio.get_running_loop(), end))
            await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    world, loop, end = began.get(timeout=30)
    try:
        yield world
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(30)
