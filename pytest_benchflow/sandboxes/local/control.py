"""The runner's end of local sandboxes: the zygote that forks them, and requests to the init process of each."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.core.process import keep_from_forks
from pytest_benchflow.sandboxes.local.cgroups import Cgroups, Group
from pytest_benchflow.sandboxes.local.guest import wire

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.network import Forwarder

T = TypeVar("T")

#: Generous: a loaded machine may be slow, but nothing may hang for ever.
START_TIMEOUT_SEC = 60.0
SPAWN_TIMEOUT_SEC = 2.0
STOP_TIMEOUT_SEC = 15.0
KILL_TIMEOUT_SEC = 15.0
LISTEN_TIMEOUT_SEC = 15.0


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
        self.exits: dict[str, socket.socket] = {}
        """The sockets that programs which want out are led to, until somebody takes them to serve them."""
        self._listeners: dict[int, socket.socket] = {}
        sock.setblocking(False)
        keep_from_forks(sock)
        self._loop.add_reader(sock, self._on_message)

    async def wait_started(self) -> None:
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

    async def listen(self, port: int) -> socket.socket:
        """Return a socket that programs inside reach on a port of their loopback; SandboxError if it is taken."""
        number, listening = await self.request({"op": "listen", "port": port}, ())
        async with asyncio.timeout(LISTEN_TIMEOUT_SEC):
            await asyncio.shield(listening)
        return self._listeners.pop(number)

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
        """Kill a sandbox whose event loop was closed while it ran; nobody waits for its end any more."""
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
                self.written, *exits = fds
                self.exits = {kind: socket.socket(fileno=fd) for kind, fd in zip(message["exits"], exits, strict=True)}
            case "ready":
                _settle(self._ready, None)
            case "failed":
                _settle(self._ready, SandboxError(f"sandbox {self.name} cannot start: {message['error']}"))
            case "listening":
                if exit_status := self._exits.pop(message["id"], None):
                    if fds:
                        self._listeners[message["id"]] = socket.socket(fileno=fds[0])
                    _settle(exit_status, 0 if fds else SandboxError(message["error"], retryable=False))
            case "exit":
                if exit_status := self._exits.pop(message["id"], None):
                    _settle(exit_status, message["status"])

    def _end(self, how: str) -> None:
        """Note that the sandbox is gone and let every waiter know."""
        if self._gone.done():
            return
        # What init sent just before it ended is still in the socket.
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
        for sock in (*self.exits.values(), *self._listeners.values()):
            sock.close()
        error = SandboxError(f"sandbox {self.name} {how}")
        _settle(self._ready, error)
        for exit_status in self._exits.values():
            _settle(exit_status, error)
        self._exits.clear()
        _settle(self._gone, None)
        self._on_gone(self)


def _settle(future: asyncio.Future[T], outcome: T | Exception) -> None:
    """Complete a future once; a failure that nobody waits for is not reported."""
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


_HERE = Path(__file__).parent
_PACKAGE = Path(__file__).parents[3]
_CODE = "import sys; sys.path += sys.argv[1:3]; from guest import zygote; zygote.main(int(sys.argv[3]))"
#: An interpreter with a shared library may need this one to start; nothing else of the environment is passed on.
_KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
EXIT_TIMEOUT_SEC = 5.0
#: A sandbox stopped while it starts may have a helper on its way out; its group goes a moment later.
_TIDY_TIMES, _TIDY_SEC = 20, 0.05


class Launcher:
    """Owns one zygote; starts it on first use and again if it died."""

    def __init__(self) -> None:
        self._controls: set[Control] = set()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._cgroups: Cgroups | None = None
        self._forwarder: Forwarder | None = None
        self.uses_rules = True
        """Whether packet rules lead programs out, where the kernel has them; otherwise they must ask a proxy."""

    def spawn(self, config: wire.Message, name: str, written: str) -> tuple[Control, Group]:
        """Have a sandbox forked in a control group of its own; the control tells when it is up.

        The directory `written` goes, should this process be killed.
        """
        if self._cgroups is None:
            self._cgroups = Cgroups.detect()
        cgroups = self._cgroups
        group = cgroups.make(config["cpus"], config["memory_mb"], config["pids"])
        limited = "memory" in group.enforced(group.paths)
        config = {**config, "memory_mb": config["memory_mb"] if limited else None, "rules": self.uses_rules}
        flags = wire.PRIVILEGED if config["privileged"] else b""
        ours, theirs = wire.pair()
        try:
            with theirs:
                wire.send(ours, config)
                try:
                    wire.call(self._connection(), flags, written, group.paths, theirs.fileno())
                except OSError:
                    self.close()
                    wire.call(self._connection(), flags, written, group.paths, theirs.fileno())
        except BaseException:
            ours.close()
            cgroups.discard(group)
            raise

        def gone(control: Control) -> None:
            self._controls.discard(control)
            cgroups.discard(group)
            _tidy(cgroups, _TIDY_TIMES)

        control = Control(ours, name, gone)
        self._controls.add(control)
        return control, group

    def forwarder(self) -> Forwarder:
        """Return who connects sandboxes to the outside, made when the first of them wants out."""
        if self._forwarder is None:
            from pytest_benchflow.sandboxes.network import Forwarder

            self._forwarder = Forwarder()
        return self._forwarder

    async def stop_all(self) -> None:
        """End every sandbox that still runs or is being started."""
        await asyncio.gather(*(control.stop() for control in list(self._controls)), return_exceptions=True)

    def close(self) -> None:
        """End the zygote; sandboxes it forked are not its concern."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(EXIT_TIMEOUT_SEC)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._cgroups is not None:
            self._cgroups.tidy()

    def close_forwarder(self) -> None:
        """End the connections to the outside; every sandbox is gone."""
        if self._forwarder is not None:
            self._forwarder.close()

    def _connection(self) -> socket.socket:
        if self._socket is None:
            ours, theirs = wire.pair()
            try:
                with theirs:
                    self._process = self._zygote(theirs.fileno())
            except OSError:
                ours.close()
                raise
            keep_from_forks(ours)
            self._socket = ours
        return self._socket

    def _zygote(self, socket_fd: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", _CODE, str(_HERE), str(_PACKAGE), str(socket_fd)],
            pass_fds=[socket_fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={key: os.environ[key] for key in _KEPT_VARIABLES if key in os.environ},
            cwd="/",
            # Ctrl-C goes to the terminal's process group; the zygote ends when the runner does.
            start_new_session=True,
        )


def _tidy(cgroups: Cgroups, times: int) -> None:
    if not cgroups.tidy() and times:
        asyncio.get_running_loop().call_later(_TIDY_SEC, _tidy, cgroups, times - 1)
