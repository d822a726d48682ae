"""The runner's end of one sandbox: requests to its init process, and word of what ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes.forks import keep_from_forks

from .guest import wire

T = TypeVar("T")

#: Generous: a loaded machine may be slow, but nothing may hang for ever.
START_TIMEOUT_SEC = 60.0
SPAWN_TIMEOUT_SEC = 2.0
STOP_TIMEOUT_SEC = 15.0
KILL_TIMEOUT_SEC = 15.0


class Control:
    """Speaks with the init process of one sandbox; bound to the event loop it is made in."""

    def __init__(self, sock: socket.socket, name: str, gone: Callable[[Control], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self.name = name
        self._on_gone = gone
        self._numbers = itertools.count(1)
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._spawned: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._pidfd: int | None = None
        self.entered: list[str] = []
        """The directories of its control group that it could enter."""
        self.written: int | None = None
        """A descriptor of the directory with all that the sandbox writes."""
        sock.setblocking(False)
        keep_from_forks(sock)
        self._loop.add_reader(sock, self._on_message)

    async def started(self) -> None:
        """Wait until the sandbox is up; SandboxError says why it is not."""
        try:
            async with asyncio.timeout(START_TIMEOUT_SEC):
                await asyncio.shield(self._ready)
        except TimeoutError:
            raise SandboxError(f"sandbox {self.name} did not start within {START_TIMEOUT_SEC:.0f} s") from None

    async def request(self, message: wire.Message, fds: Sequence[int]) -> tuple[int, asyncio.Future[int]]:
        """Ask init for something; return the request's number and the future of its exit status."""
        self._check_loop()
        number = next(self._numbers)
        self._exits[number] = exit_status = self._loop.create_future()
        try:
            await self._send({**message, "id": number}, tuple(fds))
        except BaseException:
            self._exits.pop(number, None)
            raise
        return number, exit_status

    async def kill(self, number: int, exit_status: asyncio.Future[int]) -> None:
        """Kill what request `number` started, and wait until it is gone."""
        try:
            # A program that has ended may have left others, so init is asked in any case.
            _, killed = await self.request({"op": "kill", "target": number}, ())
        except SandboxError:
            return
        _, pending = await asyncio.wait([killed, exit_status], timeout=KILL_TIMEOUT_SEC)
        if pending:
            raise SandboxError(f"a process in sandbox {self.name} could not be killed")

    async def stop(self) -> None:
        """Kill the sandbox with everything in it, and wait until the kernel has removed it; idempotent."""
        if self._loop.is_closed():
            await self._stop_after_its_loop()
            return
        self._check_loop()
        if not self._gone.done() and self._pidfd is None:
            await asyncio.wait([self._spawned, self._gone], timeout=SPAWN_TIMEOUT_SEC, return_when="FIRST_COMPLETED")
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        else:
            # Whatever still comes up finds its socket closed and ends.
            self._end("was stopped while it started")
        done, _ = await asyncio.wait([self._gone], timeout=STOP_TIMEOUT_SEC)
        if not done:
            self._end("did not end")
            raise SandboxError(f"sandbox {self.name} did not end within {STOP_TIMEOUT_SEC:.0f} s")

    async def _stop_after_its_loop(self) -> None:
        """Kill a sandbox whose loop was closed over its head, where nobody can be told of its end any more."""
        if self._gone.done():
            return
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            await asyncio.to_thread(select.select, [self._pidfd], [], [], STOP_TIMEOUT_SEC)
        self._end("lost its event loop")

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise SandboxError(
                f"sandbox {self.name} belongs to another event loop",
                advice="use a sandbox in the event loop that it was started in",
                retryable=False,
            )

    async def _send(self, message: wire.Message, fds: tuple[int, ...]) -> None:
        while True:
            if self._gone.done():
                raise SandboxError(f"sandbox {self.name} is gone")
            try:
                wire.send(self._sock, message, fds)
            except BlockingIOError:
                # Init answers within milliseconds; a queue this long is rare and short.
                await asyncio.sleep(0.005)
            except OSError as error:
                raise SandboxError(f"sandbox {self.name} is gone ({error.strerror})") from None
            else:
                return

    def _on_message(self) -> None:
        try:
            received = wire.receive(self._sock)
        except BlockingIOError:
            return
        if received is not None:
            self._take(*received)
        elif self._pidfd is None:
            self._end("ended before it started")
        else:
            # Only the pidfd tells that every process inside is dead too.
            self._loop.remove_reader(self._sock)

    def _take(self, message: wire.Message, fds: list[int]) -> None:
        match message["event"]:
            case "spawned":
                self._pidfd = fds[0]
                self.entered = message["cgroups"]
                self._loop.add_reader(self._pidfd, self._end, "ended")
                self._spawned.set_result(None)
            case "built":
                self.written = fds[0]
            case "ready":
                _settle(self._ready, None)
            case "failed":
                _settle(self._ready, SandboxError(f"sandbox {self.name} cannot start: {message['error']}"))
            case "exit":
                if exit_status := self._exits.pop(message["id"], None):
                    _settle(exit_status, message["status"])

    def _end(self, how: str) -> None:
        """Note that the sandbox is gone and let every waiter know."""
        if self._gone.done():
            return
        # What init said with its last breath is still in the socket.
        with contextlib.suppress(OSError):
            while received := wire.receive(self._sock):
                self._take(*received)
        if not self._loop.is_closed():
            self._loop.remove_reader(self._sock)
            if self._pidfd is not None:
                self._loop.remove_reader(self._pidfd)
        self._sock.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        if self.written is not None:
            os.close(self.written)
            self.written = None
        error = SandboxError(f"sandbox {self.name} {how}")
        _settle(self._ready, error)
        for exit_status in self._exits.values():
            _settle(exit_status, error)
        self._exits.clear()
        _settle(self._gone, None)
        self._on_gone(self)


def _settle(future: asyncio.Future[T], outcome: T | Exception) -> None:
    """Complete a future once; a failure nobody waits for is no news."""
    if future.done():
        return
    # Whoever waits in a loop that is closed is not told, but the future is complete.
    with contextlib.suppress(RuntimeError):
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    if isinstance(outcome, Exception):
        future.exception()
