"""Commands in a running container, started by the engine, and their end: whatever the container is."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import ClassVar

from pytest_benchflow.core.capture import Capture
from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.base import ExecResult
from pytest_benchflow.sandboxes.docker.channel import Answer, Channel, CommandEnd, Sink
from pytest_benchflow.sandboxes.docker.client import DockerEngine, EngineError
from pytest_benchflow.sandboxes.docker.connection import Connection, open_connection
from pytest_benchflow.sandboxes.docker.streams import STDERR, STDOUT, DockerProcess, DockerTerminal, frames
from pytest_benchflow.sandboxes.helpers import OWN_ENV

#: How Docker and Podman tell in a program's stead that they could not start it, and the status they then give.
_REFUSAL = re.compile(
    r"^(?:OCI runtime exec failed: |Error: (?:runc|crun): )(?:exec failed: )?|^(?=unable to find (?:user|group) )"
    # The last word of the process that was to become the program, whose status is then 1.
    r"|^exec /.*: (?=(?:argument list too long|exec format error|no such file or directory)$)"
)
NEVER_STARTED = (126, 127)
KILLED = 137
_GONE = (404, 409)


class Execs:
    """Creates, starts and looks at programs of one container."""

    def __init__(self, engine: DockerEngine, container_id: str, title: str, *, user: str) -> None:
        """Call the container `title` in messages; programs for which nobody names a user get `user`."""
        self._engine = engine
        self._container_id = container_id
        self._title = title
        self._user = user

    async def create(
        self,
        argv: Sequence[str],
        *,
        user: str,
        env: Mapping[str, str],
        cwd: str | None = None,
        stdin: bool = False,
        tty: bool = False,
    ) -> str:
        """Prepare a program and return its number in the engine; without a directory it starts in the container's."""
        try:
            made = await self._engine.call(
                lambda client: client.exec_create(
                    self._container_id,
                    list(argv),
                    stdin=stdin,
                    tty=tty,
                    user=user or self._user,
                    workdir=cwd,
                    environment=[f"{name}={value}" for name, value in env.items()],
                )
            )
        except EngineError as error:
            raise self._exec_error(error) from None
        return str(made["Id"])

    async def start(self, exec_id: str, *, tty: bool = False) -> Connection:
        """Start a program, to the end even when cancelled: only what has started can be found and killed."""
        starting = asyncio.ensure_future(self._start(exec_id, tty=tty))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            if starting.exception() is None:
                starting.result().close()
                await self.is_running(exec_id)
            raise

    async def run(self, argv: Sequence[str], *, user: str) -> tuple[int | None, bytes]:
        """Run a program to its end and return its status and all that it printed."""
        exec_id = await self.create(argv, user=user, env=OWN_ENV, cwd="/")
        with contextlib.closing(await self.start(exec_id)) as connection:
            output = b"".join([data async for _, data in frames(connection.reader)])
        return await self.exit_code(exec_id), output

    async def is_running(self, exec_id: str) -> bool:
        """Return whether a program runs, once the engine has started it or knows that it cannot."""
        while True:
            try:
                facts = await self._engine.call(lambda client: client.exec_inspect(exec_id))
            except EngineError as error:
                if error.status == 404:
                    return False
                raise
            # The engine hands the connection over before it starts the program.
            if facts["Pid"] or facts["ExitCode"] is not None:
                return bool(facts["Running"])
            await asyncio.sleep(0.005)

    async def exit_code(self, exec_id: str) -> int | None:
        """Return a program's status, None while it runs; one whose container is gone was killed."""
        try:
            facts = await self._engine.call(lambda client: client.exec_inspect(exec_id))
        except EngineError as error:
            if error.status == 404:
                return KILLED
            raise
        code: int | None = None if facts["Running"] else facts["ExitCode"]
        return code

    async def resize(self, exec_id: str, rows: int, columns: int) -> None:
        """Give the terminal of a program another size; one that has ended needs none."""
        with contextlib.suppress(EngineError):
            await self._engine.call(lambda client: client.exec_resize(exec_id, height=rows, width=columns))

    async def _start(self, exec_id: str, *, tty: bool) -> Connection:
        path = f"/v{await self._engine.version()}/exec/{exec_id}/start"
        try:
            return await open_connection(self._engine.address, path, body={"Detach": False, "Tty": tty})
        except EngineError as error:
            raise self._exec_error(error) from None

    def _exec_error(self, error: EngineError) -> SandboxError:
        if "paused" in error.reason:
            return SandboxError(f"{self._title} is paused")
        if error.status in _GONE:
            return SandboxError(f"{self._title} is gone: its container has ended")
        if reason := refusal(error.reason.encode()):
            return SandboxError(f"{self._title}: {reason}", retryable=False)
        return error


def refusal(output: bytes) -> str | None:
    """Return why the engine could not start a program, if that is what the output says."""
    first = output.decode(errors="replace").strip().partition("\n")[0]
    if not _REFUSAL.match(first):
        return None
    return _REFUSAL.sub("", first).removesuffix(": unknown").partition(": OCI ")[0]


ROOT = frozenset({"", "0", "root", "0:0", "root:root"})
_REFUSAL_SEC = 1.0
_SIZED = 'stty rows {} cols {} 2>/dev/null; exec -- "$@"'


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of a shell with everything resolved; without a user it is the container's own."""

    text: str
    cwd: str = "/"
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


class ShellContainer(ABC):
    """Runs commands in one container with a shell that it has."""

    #: Where the engine starts the shell, which then goes to the command's directory; None: where the container does.
    _starts_in: ClassVar[str | None] = "/"

    def __init__(self, engine: DockerEngine, container_id: str, title: str, *, user: str) -> None:
        """Call it `title` in messages; programs for which nobody names a user get `user`, "" for the container's."""
        self.engine = engine
        self.id = container_id
        self.title = title
        self._execs = Execs(engine, container_id, title, user=user)
        self._processes: set[DockerProcess] = set()

    @property
    def channel(self) -> Channel | None:
        """The line to PID 1, where that is ours."""
        return None

    def quote(self, word: str) -> str:
        """Return a word as its shell reads it back."""
        return shlex.quote(word)

    @abstractmethod
    def _argv(self, nonce: str, command: Command) -> list[str]:
        """Return the program that runs a command in its directory and tells its end with the nonce."""

    @abstractmethod
    async def kill(self, mark: str, began: float, user: str) -> None:
        """Kill every process of the command that began at a moment of the loop's clock; return when they are gone."""

    async def has_ended(self) -> bool:
        """Return whether the container has ended and its answers about files mean nothing; a service's may go on."""
        return False

    async def is_dying(self) -> bool:
        """Return whether the container has ended or is about to, where that can be known."""
        return False

    async def run(
        self, command: Command, *, stdin: bytes | None = None, timeout_sec: float | None = None
    ) -> ExecResult:
        """Run a command to its end and return its output."""
        out, err = Capture(), Capture()
        ended = await self.run_into(command, out.feed, err.feed, stdin=stdin, timeout_sec=timeout_sec)
        return ExecResult(int(ended.status), out.text(), err.text())

    async def run_into(
        self,
        command: Command,
        stdout: Sink,
        stderr: Sink,
        *,
        stdin: bytes | None = None,
        timeout_sec: float | None = None,
    ) -> CommandEnd:
        """Run a command, handing its output on as it comes; on timeout or cancellation its whole tree is killed."""
        mark, began = secrets.token_hex(8), asyncio.get_running_loop().time()
        env = {**command.env, "BF_EXEC": mark}
        answer = Answer(stdout, stderr)
        try:
            async with asyncio.timeout(timeout_sec):
                ended = await self._run(command, env, answer, stdin)
        except SandboxError:
            raise
        except BaseException as error:
            await asyncio.shield(self.kill(mark, began, command.user))
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"command timed out after {timeout_sec:g} s: {_short(command.text)}") from None
            raise
        if ended.status == "cwd":
            raise SandboxError(f"{self.title} has no directory {command.cwd} to run in", retryable=False)
        return ended

    async def open(self, argv: Sequence[str], *, user: str, cwd: str, env: Mapping[str, str]) -> DockerProcess:
        """Start a program with pipes; SandboxError says why it cannot be started."""
        mark, began = secrets.token_hex(8), asyncio.get_running_loop().time()

        async def kill() -> None:
            await self.kill(mark, began, user)

        exec_id = await self._execs.create(argv, user=user, cwd=cwd, env={**env, "BF_EXEC": mark}, stdin=True)
        try:
            process = DockerProcess(await self._execs.start(exec_id), lambda: self._execs.exit_code(exec_id), kill)
            self._processes.add(process)
            if not await self._execs.is_running(exec_id) and await process.wait() in NEVER_STARTED:
                # Streams that stay open belong to something that has started.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_REFUSAL_SEC):
                        await process.streams.ended.wait()
                if reason := refusal(process.streams.seen(STDOUT) + process.streams.seen(STDERR)):
                    raise self._start_error(argv[0], reason)
        except asyncio.CancelledError:
            await asyncio.shield(kill())
            raise
        return process

    async def open_terminal(
        self, argv: Sequence[str], size: tuple[int, int], *, user: str, cwd: str, env: Mapping[str, str]
    ) -> DockerTerminal:
        """Start a program at a terminal; SandboxError says why it cannot be started."""
        mark, began = secrets.token_hex(8), asyncio.get_running_loop().time()

        async def kill() -> None:
            await self.kill(mark, began, user)

        # The engine gives the terminal its size too late for a program that asks for it at once.
        sized = ["bash", "-c", _SIZED.format(*size), "bash", *argv]
        exec_id = await self._execs.create(
            sized, user=user, cwd=cwd, env={**env, "BF_EXEC": mark}, stdin=True, tty=True
        )
        terminal = DockerTerminal(
            await self._execs.start(exec_id, tty=True),
            lambda: self._execs.exit_code(exec_id),
            kill,
            lambda rows, columns: self._execs.resize(exec_id, rows, columns),
        )
        self._processes.add(terminal)
        return terminal

    def close(self) -> None:
        """Let go of every connection."""
        for process in self._processes:
            process.close()

    async def _run(self, command: Command, env: Mapping[str, str], answer: Answer, stdin: bytes | None) -> CommandEnd:
        argv = self._argv(answer.nonce, command)
        exec_id = await self._execs.create(
            argv, user=command.user, env=env, cwd=self._starts_in, stdin=stdin is not None
        )
        connection = await self._execs.start(exec_id)
        sending = asyncio.create_task(_send(connection, stdin)) if stdin is not None else None
        first = b""
        try:
            async for stream, data in frames(connection.reader):
                first = first or data
                await answer.feed(stream, data)
                if answer.ended.done():
                    return answer.ended.result()
        except asyncio.CancelledError:
            await asyncio.shield(self._execs.is_running(exec_id))
            raise
        finally:
            if sending is not None:
                sending.cancel()
            connection.close()
        # Nobody told its end: the wrapper was killed, alone or with everything else, or never started.
        if await self.is_dying():
            raise self.gone_error()
        await answer.flush()
        code = KILLED if await self._execs.is_running(exec_id) else await self._execs.exit_code(exec_id)
        if code in (1, *NEVER_STARTED) and (reason := refusal(first)):
            raise self._start_error(PurePosixPath(argv[0]).name, reason)
        return CommandEnd(str(code), "0")

    def gone_error(self) -> SandboxError:
        """Return the error of whatever is asked of a container that has ended."""
        return SandboxError(f"{self.title} is gone: its container has ended")

    def _start_error(self, program: str, reason: str) -> SandboxError:
        return SandboxError(f"{self.title}: {program} cannot be started: {reason}", retryable=False)


async def _send(connection: Connection, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        await connection.write(data)
        connection.write_eof()


def _short(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= 80 else f"{first[:77]}..."
