"""A started sandbox without any image: runs programs and moves files as tar streams, knows nothing of tasks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.core.network import PUBLIC, Network
from pytest_benchflow.core.removal import remove_tree
from pytest_benchflow.sandboxes.base import ExecResult, KilledProgram
from pytest_benchflow.sandboxes.helpers import UnreachedHosts
from pytest_benchflow.sandboxes.local.cgroups import Group
from pytest_benchflow.sandboxes.local.control import Control, Launcher
from pytest_benchflow.sandboxes.local.exits import Exits
from pytest_benchflow.sandboxes.local.guest import wire
from pytest_benchflow.sandboxes.local.layers import copy_written
from pytest_benchflow.sandboxes.local.pipes import Collector, ProgramPipes, ReadPipe, WritePipe

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.local.terminal import LocalTerminal


class LocalProcess:
    """Implements `Process`; closed by the machine at the latest."""

    def __init__(
        self,
        control: Control,
        number: int,
        status: asyncio.Future[int],
        stdin: WritePipe,
        stdout: ReadPipe,
        stderr: ReadPipe,
        closed: Callable[[LocalProcess], None],
    ) -> None:
        self._control = control
        self._number = number
        self._status = status
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr
        self._on_close = closed

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input, waiting while the pipe is full."""
        await self._stdin.write(data)

    async def close_stdin(self) -> None:
        """Close its standard input; idempotent."""
        self._stdin.close()

    async def read(self, n: int = 65536) -> bytes:
        """Return up to `n` bytes of its standard output; b"" at the end."""
        return await self._stdout.read(n)

    async def read_stderr(self, n: int = 65536) -> bytes:
        """Return up to `n` bytes of its standard error; b"" at the end."""
        return await self._stderr.read(n)

    async def wait(self) -> int:
        """Wait for its exit and return the status."""
        return await asyncio.shield(self._status)

    async def kill(self) -> None:
        """Kill the whole process tree inside the sandbox; idempotent."""
        self._stdin.close()
        await self._control.kill(self._number, self._status)

    def close(self) -> None:
        """Let go of its pipes; what it writes from now on is lost."""
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()
        self._on_close(self)


HALT_TIMEOUT_SEC = 15.0
_REPORT_BYTES = 1 << 16
#: How long a finished command's output may stay open, for helpers that end just after it.
LINGER_SEC = 0.2


@dataclass(frozen=True, slots=True)
class MachineConfig:
    """What the root of a machine is made of."""

    name: str
    privileged: bool
    network: Network = PUBLIC
    leads_out: bool = True
    """Whether programs may ever reach anything but their own loopback."""
    layers_dir: str | None = None
    layers: tuple[str, ...] = ()
    """Names of layers inside `layers_dir`, topmost first."""
    mirror: str | None = None
    """Name of a layer that lies directly on the host's directories."""
    write_dir: str | None = None
    """Name of a new directory inside `layers_dir` for what is written; None means memory."""
    is_layer: bool = False
    """Whether that directory outlives the machine, as a layer."""
    storage_mb: int | None = None
    memory_mb: int | None = None
    cpus: float | None = None
    pids: int | None = None
    dirs: tuple[str, ...] = ()
    """Directories that must exist."""
    mounts: tuple[tuple[str, str], ...] = ()
    """Host directories to show read-only, and where."""
    python_prefix: str | None = None
    """An interpreter outside the system directories to show, read-only."""
    open_prefix: bool = False
    """Whether every user must be able to reach that interpreter."""
    hostname: str = "sandbox"

    @property
    def written(self) -> str:
        """Where on disk all that is written lies; empty if it is in memory."""
        return f"{self.layers_dir}/{self.write_dir}" if self.write_dir else ""

    def message(self) -> wire.Message:
        """Return it as the builder of its root reads it."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "network"}


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run, with everything resolved."""

    argv: Sequence[str]
    cwd: str = "/"
    user: str | int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    merge: bool = False
    """Send its errors where its output goes."""

    def message(self, variables: Mapping[str, str], *, keep: bool = False) -> wire.Message:
        """Return it as init reads it, over `variables`; with `keep`, what it leaves can still be killed with it."""
        return {
            "op": "run",
            "argv": list(self.argv),
            "cwd": self.cwd,
            "user": self.user,
            "env": {**variables, **self.env},
            "merge": self.merge,
            "keep": keep,
        }


@dataclass(frozen=True, slots=True)
class Target:
    """Where files go in a sandbox, and whose they become."""

    path: str
    owner: str | None = None
    """None is root; with `keep_owners` everything keeps the one it had."""
    mode: int | None = None
    is_file: bool = False
    """The stream's only file becomes `path` itself, unless that is a directory."""
    keep_owners: bool = False
    replaces: bool = False
    """Files and directories take the place of what is of another kind."""


class Machine:
    """One running sandbox."""

    def __init__(self, launcher: Launcher, control: Control, group: Group, config: MachineConfig) -> None:
        self._control = control
        self._group = group
        self._launcher = launcher
        self._name = config.name
        self._temporary_dir = "" if config.is_layer else config.written
        self._oom_kills = 0
        self._exits: Exits | None = None
        self._variables: dict[str, str] = {}
        """How programs find the way out where they cannot just go."""
        self._open: set[LocalProcess | LocalTerminal | Collector] = set()

    @classmethod
    async def start(cls, launcher: Launcher, config: MachineConfig) -> Machine:
        """Start a machine; nothing is left of it if that fails or is cancelled."""
        control, group = launcher.spawn(config.message(), config.name, config.written)
        machine = cls(launcher, control, group, config)
        try:
            await machine._control.wait_started()
            machine._take_exits(config)
        except BaseException:
            await asyncio.shield(machine.stop())
            raise
        return machine

    @property
    def enforced(self) -> frozenset[str]:
        """The controllers that limit it."""
        return self._group.enforced(self._control.entered)

    @property
    def oom_kills(self) -> int:
        """How many processes were killed in it for want of memory."""
        return max(self._oom_kills, self._group.oom_kills())

    def _take_exits(self, config: MachineConfig) -> None:
        sockets, self._control.exits = self._control.exits, {}
        self._exits = Exits(sockets, config.network, self._launcher.forwarder)
        self._variables = self._exits.variables(config.hostname)

    @property
    def unreached_hosts(self) -> UnreachedHosts:
        """The hosts that its programs asked for in vain."""
        return self._exits.unreached if self._exits else UnreachedHosts()

    async def set_network(self, network: Network) -> None:
        """Let programs reach what `network` allows from now on."""
        assert self._exits is not None
        await self._exits.set_network(network, self.listen)

    async def listen(self, port: int) -> socket.socket:
        """Return a socket that programs reach on a port of their loopback."""
        try:
            return await self._control.listen(port)
        except SandboxError as error:
            raise SandboxError(f"port {port} of sandbox {self._name}: {error.message}", retryable=False) from None

    async def stop(self) -> None:
        """End every process and wait until the machine is gone; idempotent."""
        self._oom_kills = self.oom_kills
        try:
            await self._control.stop()
            if self._exits is not None:
                await self._exits.aclose()
            if self._temporary_dir:
                await asyncio.shield(asyncio.to_thread(remove_tree, self._temporary_dir))
        finally:
            for item in list(self._open):
                item.close()

    async def open(self, command: Command) -> LocalProcess:
        """Start a program with pipes; SandboxError says why it cannot be started."""
        with ProgramPipes() as pipes:
            stdin, stdout, stderr = pipes.to_program(), pipes.from_program(), pipes.from_program()
            started = pipes.from_program()
            number, status = await self._control.request(
                command.message(self._variables, keep=True), pipes.program_ends
            )
        process = LocalProcess(
            self._control, number, status, WritePipe(stdin), ReadPipe(stdout), ReadPipe(stderr), self._open.discard
        )
        self._open.add(process)
        reason = ReadPipe(started)
        try:
            if text := await reason.read(4096):
                raise self._not_started(command, text)
        except BaseException:
            await asyncio.shield(process.kill())
            process.close()
            raise
        finally:
            reason.close()
        return process

    async def open_terminal(self, command: Command, rows: int, columns: int) -> LocalTerminal:
        """Start a program at a terminal; SandboxError says why it cannot be started."""
        from pytest_benchflow.sandboxes.local.terminal import LocalTerminal, receive

        with ProgramPipes() as pipes:
            connection = pipes.socket()
            pipes.content(b"")
            pipes.content(b"")
            started = pipes.from_program()
            message = {**command.message(self._variables, keep=True), "size": (rows, columns)}
            number, status = await self._control.request(message, pipes.program_ends)
        reason = ReadPipe(started)
        try:
            if text := await reason.read(4096):
                raise self._not_started(command, text)
            terminal = LocalTerminal(self._control, number, status, receive(connection), self._open.discard)
        except BaseException:
            await asyncio.shield(self._control.kill(number, status))
            raise
        finally:
            reason.close()
            os.close(connection)
        self._open.add(terminal)
        return terminal

    async def run(self, command: Command, *, stdin: bytes = b"", timeout_sec: float | None = None) -> ExecResult:
        """Run a program to its end; on timeout or cancellation its whole process tree is killed."""
        with ProgramPipes() as pipes:
            pipes.content(stdin)
            outputs = pipes.from_program(), pipes.from_program()
            started = pipes.from_program()
            number, status = await self._control.request(command.message(self._variables), pipes.program_ends)
        stdout, stderr = (self._collect(fd) for fd in outputs)
        try:
            async with asyncio.timeout(timeout_sec):
                code = await asyncio.shield(status)
            await asyncio.wait([stdout.ended, stderr.ended], timeout=LINGER_SEC)
            if code == wire.NOT_STARTED and (reason := os.read(started, 4096)):
                raise self._not_started(command, reason)
        except BaseException as error:
            with contextlib.suppress(SandboxError):
                await asyncio.shield(self._control.kill(number, status))
            stdout.close()
            stderr.close()
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"command timed out after {timeout_sec:g} s: {_short(command)}") from None
            raise
        finally:
            os.close(started)
        stdout.finish()
        stderr.finish()
        return ExecResult(code, stdout.text(), stderr.text())

    async def push(self, pack: Callable[[BinaryIO], None], target: Target) -> None:
        """Unpack the tar stream that `pack` writes, in a thread, at `target`."""
        await _push(self._control, pack, target)

    async def pull(self, unpack: Callable[[BinaryIO], None], source: str, *, directory: bool) -> None:
        """Give `unpack`, in a thread, the tar stream of a file or of a directory's content."""
        await _pull(self._control, unpack, source, directory=directory)

    async def snapshot(self, target: Path, *, privileged: bool) -> None:
        """Copy all that was written into an empty directory; programs stand still meanwhile."""
        await self._signal("halt")
        try:
            if self._control.written is None:
                raise SandboxError(f"sandbox {self._name} is gone")
            await copy_written(self._control.written, target, privileged=privileged)
        finally:
            await asyncio.shield(self._signal("resume"))

    async def end_programs(self, keep: Collection[str], uid: int) -> list[KilledProgram]:
        """Kill every program but those that are to be kept."""
        killed = await self._signal("purge", keep=sorted(keep), uid=uid)
        return [KilledProgram(*line.split(" ", 1)) for line in killed.decode(errors="replace").splitlines()]

    @contextlib.contextmanager
    def written(self) -> Iterator[str]:
        """Give a path by which the directory with all that the sandbox writes can be read."""
        if self._control.written is None:
            raise SandboxError(f"sandbox {self._name} is gone")
        descriptor = os.dup(self._control.written)
        try:
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)

    async def _signal(self, operation: str, **more: Any) -> bytes:
        """Have an operation done to programs, and return what is said about it."""
        with ProgramPipes() as pipes:
            report = pipes.from_program()
            _, status = await self._control.request({"op": operation, **more}, pipes.program_ends)
        try:
            async with asyncio.timeout(HALT_TIMEOUT_SEC):
                code = await asyncio.shield(status)
            if code != 0:
                raise SandboxError(f"programs in sandbox {self._name} did not {operation}")
            return os.read(report, _REPORT_BYTES)
        except TimeoutError:
            raise SandboxError(f"programs in sandbox {self._name} did not {operation}") from None
        finally:
            os.close(report)

    def _collect(self, fd: int) -> Collector:
        collector = Collector(fd, self._open.discard)
        self._open.add(collector)
        return collector

    def _not_started(self, command: Command, reason: bytes) -> SandboxError:
        text = reason.decode(errors="replace")
        return SandboxError(f"sandbox {self._name}: {command.argv[0]} cannot be started: {text}", retryable=False)


def _short(command: Command) -> str:
    text = command.argv[-1].strip().partition("\n")[0]
    return text if len(text) <= 80 else f"{text[:77]}..."


async def _push(control: Control, pack: Callable[[BinaryIO], None], target: Target) -> None:
    """Unpack the tar stream that `pack` writes at `target`."""
    message: wire.Message = {"op": "extract", **asdict(target)}
    with ProgramPipes() as pipes:
        stream, errors = pipes.to_program(), pipes.from_program()
        number, status = await control.request(message, pipes.program_ends)

    def work() -> None:
        # The receiver says better than a broken pipe what went wrong.
        with contextlib.suppress(BrokenPipeError), open(stream, "wb") as file:
            pack(file)

    code, reason = await _transfer(control, number, status, errors, work)
    if code != wire.DONE:
        raise SandboxError(f"cannot write {target.path} in sandbox {control.name}: {reason}", retryable=False)


async def _pull(control: Control, unpack: Callable[[BinaryIO], None], source: str, *, directory: bool) -> None:
    """Give `unpack` the tar stream of the file or of the directory's content."""
    message: wire.Message = {"op": "archive", "source": source, "directory": directory}
    with ProgramPipes() as pipes:
        stream, errors = pipes.from_program(), pipes.from_program()
        number, status = await control.request(message, pipes.program_ends)
    failure: list[Exception] = []

    def work() -> None:
        with open(stream, "rb") as file:
            try:
                unpack(file)
            except Exception as error:
                # The sender may know a better reason: an empty stream means a missing file, not a broken archive.
                failure.append(error)

    code, reason = await _transfer(control, number, status, errors, work)
    kind = "directory" if directory else "file"
    if code == wire.MISSING:
        raise FileNotFoundError(f"no {kind} {source} in sandbox {control.name}")
    if code == wire.WRONG_KIND:
        raise FileNotFoundError(f"{source} in sandbox {control.name} is not a {kind}")
    if failure and not reason:
        raise failure[0]
    if code != wire.DONE:
        raise SandboxError(f"cannot read {source} in sandbox {control.name}: {reason}", retryable=False)


async def _transfer(
    control: Control, number: int, status: asyncio.Future[int], errors: int, work: Callable[[], None]
) -> tuple[int, str]:
    """Do the host's part in a thread; return the exit status and the reason of the part inside."""
    thread = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(thread)
        code = await asyncio.shield(status)
        return code, os.read(errors, 4096).decode(errors="replace")
    except BaseException:
        # Once the other end is dead, the thread finds its pipe closed and ends too.
        with contextlib.suppress(SandboxError):
            await asyncio.shield(control.kill(number, status))
        await asyncio.wait([thread], timeout=5.0)
        raise
    finally:
        os.close(errors)
