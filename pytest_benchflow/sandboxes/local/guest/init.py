"""PID 1 of a sandbox: builds its root, then starts programs and moves files for the runner.

It ends when the runner's end of the control socket closes, for whatever reason; the kernel then kills every process of
the pid namespace, and the mounts go with the last of them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from _signal import SIG_DFL, SIGCHLD, signal as set_handler  # type: ignore[import-not-found]
from collections.abc import Callable
from typing import NoReturn

from . import devices, hostview, network, programs, rootfs, security, transfer, wire
from .hostview import HostView

_READY = wire.encode({"event": "ready"})


def main(descriptor: int, host: HostView, rights: security.Privileges, *, privileged: bool) -> NoReturn:
    """Become the init process of the sandbox that the runner describes through `descriptor`."""
    control = socket.socket(fileno=descriptor)
    try:
        os.setsid()
        os.umask(0o022)
        # In a child, because all memory that building the root writes to would be copied for as long as init lives.
        # Changing the root of the mount namespace changes it for init too.
        if (builder := os.fork()) == 0:
            _build(control, host)
        if os.waitpid(builder, 0)[1]:
            os._exit(1)
        os.chdir("/")
        proc = devices.cover_proc(privileged=privileged)
        rights.drop()
        control.send(_READY)
        _Init(control, proc).serve()
    except BaseException as error:
        wire.send_failure(control, error)
        os._exit(1)
    os._exit(0)


def _build(control: socket.socket, host: HostView) -> NoReturn:
    """Read what the sandbox is to be, make its root, and leave."""
    try:
        request = wire.receive(control)
        if request is not None:
            config, _ = request
            socket.sethostname(config["hostname"])
            network.raise_loopback()
            exits = network.open_exits(rules=config["rules"]) if config["leads_out"] else {}
            config["name_server"] = network.NAME_SERVER if "names" in exits else None
            written = rootfs.enter(config, host if host.is_current() else hostview.detect())
            descriptors = (written, *(sock.fileno() for sock in exits.values()))
            wire.send(control, {"event": "built", "exits": list(exits)}, descriptors)
            os._exit(0)
    except BaseException as error:
        wire.send_failure(control, error)
    os._exit(1)


def reset_child_signal() -> None:
    """Let children wait to be reaped."""
    # Not with the `signal` module: its enums are many objects whose memory would be copied for every sandbox.
    set_handler(SIGCHLD, SIG_DFL)


def _ignore_signal(*_: object) -> None:
    """Do nothing: a handler is what makes a signal interrupt waiting calls and write to the wakeup descriptor."""


class _Init:
    def __init__(self, control: socket.socket, proc: int) -> None:
        self._control = control
        self._proc = proc
        """A /proc that can be written to."""
        self._children: dict[int, int] = {}
        """Request number of each child that the runner waits for."""
        self._early: set[int] = set()
        """Requests whose exit was reported though their supervisor stays."""
        self._wake_read, self._wake_write = os.pipe()
        self._reports_read, self._reports_write = os.pipe()

    def serve(self) -> None:
        """Answer requests and reap children until the runner is gone."""
        for fd in (self._wake_read, self._reports_read):
            os.set_blocking(fd, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        set_handler(SIGCHLD, _ignore_signal)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._reports_read, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            self._take_reports()
            if self._wake_read in ready:
                self._reap()
            if self._control.fileno() in ready:
                request = wire.receive(self._control)
                if request is None:
                    return
                self._handle(*request)

    def _handle(self, message: wire.Message, fds: list[int]) -> None:
        number: int = message["id"]
        match message["op"]:
            case "run":
                self._start(number, fds, lambda: programs.supervise(message, fds, self._reports_write, self._proc))
            case "extract":
                self._start(number, fds, lambda: transfer.extract(message, fds))
            case "archive":
                self._start(number, fds, lambda: transfer.archive(message, fds))
            case "halt":
                self._start(number, fds, programs.halt)
            case "resume":
                self._start(number, fds, programs.resume)
            case "purge":
                keep, own = frozenset(message["keep"]), frozenset(self._children)
                self._start(number, fds, lambda: programs.purge(keep, message["uid"], fds[0], own))
            case "listen":
                self._listen(number, message["port"])
            case "kill":
                self._kill(number, message["target"])
        for fd in fds:
            os.close(fd)

    def _start(self, number: int, fds: list[int], work: Callable[[], int]) -> None:
        """Do the work of a request in a child; its exit is reported when it is reaped."""
        try:
            self._children[self._fork(work)] = number
        except OSError as error:
            # A sandbox full of processes must not take its init down.
            self._report(number, programs.report_start_failure(fds, error))

    def _listen(self, number: int, port: int) -> None:
        """Hand the runner a socket to which programs of this sandbox can connect."""
        try:
            with network.listen(port) as sock:
                wire.send(self._control, {"event": "listening", "id": number}, (sock.fileno(),))
        except OSError as error:
            wire.send(self._control, {"event": "listening", "id": number, "error": error.strerror})

    def _kill(self, number: int, target: int) -> None:
        supervisor = next((pid for pid, owner in self._children.items() if owner == target), None)
        if supervisor is None:
            self._report(number, 0)
            return
        try:
            self._children[self._fork(lambda: programs.kill(supervisor))] = number
        except OSError:
            self._report(number, programs.kill(supervisor))

    def _fork(self, work: Callable[[], int]) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            reset_child_signal()
            # Only init may hold the socket: whoever else did would keep a dead runner's sandbox alive.
            self._control.close()
            status = work()
        finally:
            os._exit(status)

    def _report(self, number: int, status: int) -> None:
        wire.send(self._control, {"event": "exit", "id": number, "status": status})

    def _take_reports(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._reports_read, programs.REPORT.size):
                number, status = programs.REPORT.unpack(data)
                self._early.add(number)
                self._report(number, status)

    def _reap(self) -> None:
        while _drain(self._wake_read):
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self._children.pop(pid, None)
            # What it wrote before it ended.
            self._take_reports()
            if number in self._early:
                self._early.remove(number)
            elif number is not None:
                self._report(number, programs.exit_status(status))


def _drain(fd: int) -> bool:
    try:
        return len(os.read(fd, 512)) == 512
    except BlockingIOError:
        return False
