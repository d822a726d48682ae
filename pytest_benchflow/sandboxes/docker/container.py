"""A running container: commands in it, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes.base import ExecResult

from .answer import Answer, Ended, Sink
from .channel import Channel
from .connection import Connection, open_connection
from .engine import Engine, EngineError
from .frames import STDERR, STDOUT, Capture, frames
from .guest import script
from .process import DockerProcess

_ROOT = frozenset({"", "0", "root", "0:0", "root:root"})
#: How the engine tells in a program's stead that it could not start it.
_REFUSAL = re.compile(rb"^(OCI runtime exec failed: (exec failed: )?|unable to find (user|group) )")
_NEVER_STARTED = (126, 127)
_KILL_TIMEOUT_SEC = 20.0
_GONE = (404, 409)


@dataclass(frozen=True, slots=True)
class Command:
    """A bash command line with everything resolved."""

    text: str
    cwd: str = "/"
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


class Container:
    """Runs commands in one container whose PID 1 listens on `channel`."""

    def __init__(self, engine: Engine, container_id: str, name: str, channel: Channel) -> None:
        self.engine = engine
        self.id = container_id
        self.name = name
        self.channel = channel
        self.ended = False
        self._processes: set[DockerProcess] = set()

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
    ) -> Ended:
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
            raise SandboxError(f"sandbox {self.name} has no directory {command.cwd} to run in", retryable=False)
        return ended

    async def open(self, argv: Sequence[str], *, user: str, cwd: str, env: Mapping[str, str]) -> DockerProcess:
        """Start a program with pipes; SandboxError says why it cannot be started."""
        mark, began = secrets.token_hex(8), asyncio.get_running_loop().time()

        async def kill() -> None:
            await self.kill(mark, began, user)

        exec_id = await self._create(argv, user=user, cwd=cwd, env={**env, "BF_EXEC": mark}, stdin=True)
        connection = await self._started(exec_id)
        process = DockerProcess(connection, lambda: self._exit_code(exec_id), kill)
        self._processes.add(process)
        try:
            if not await self._runs(exec_id) and await process.wait() in _NEVER_STARTED:
                await process.streams.ended.wait()
                if reason := _refusal(process.streams.seen(STDOUT) + process.streams.seen(STDERR)):
                    raise self._cannot_start(argv[0], reason)
        except BaseException:
            process.close()
            raise
        return process

    async def kill(self, mark: str, began: float, user: str) -> None:
        """Kill every process of the command that began at a moment of the loop's clock; return when they are gone."""
        argv = [self.channel.bash, "-p", "-c", f"{script('common', 'kill')}bf_kill {mark} {self.channel.ticks(began)}"]
        async with asyncio.timeout(_KILL_TIMEOUT_SEC):
            # Only its own user may read a process's environment, and only root reaches what changed its user.
            for killer in (user, "0") if user not in _ROOT else ("0",):
                try:
                    exec_id = await self._create(argv, user=killer, cwd="/", env={}, stdin=False)
                    output = await self._drained(exec_id)
                    done = await self._exit_code(exec_id) == 0
                except SandboxError as error:
                    if self.channel.closed or self.ended:
                        return
                    output, done = str(error).encode(), False
                if not done:
                    await self._kill_without_fork(mark, began, output)

    async def _kill_without_fork(self, mark: str, began: float, output: bytes) -> None:
        """Let PID 1 do it: where the process limit is reached, nothing new can be started."""
        said = Capture()
        ended = await self.channel.kill(Answer(said.feed, said.feed), mark, began)
        if ended.status != "0":
            text = output.decode(errors="replace").strip()
            raise SandboxError(f"sandbox {self.name}: a command could not be killed {text}".rstrip())

    def close(self) -> None:
        """Let go of every connection: the container ends, if it has not been kept."""
        self.ended = True
        for process in self._processes:
            process.close()
        self.channel.close()

    async def _run(self, command: Command, env: Mapping[str, str], answer: Answer, stdin: bytes | None) -> Ended:
        if command.user in _ROOT and self.channel.idle:
            line = self.channel.line_for(answer, command.text, command.cwd, env, stdin)
            if line is not None:
                return await self.channel.run(answer, line)
        wrapper = script("common", "exec")
        argv = [self.channel.bash, "-c", wrapper, "bash", answer.nonce, command.cwd, command.text]
        exec_id = await self._create(argv, user=command.user, cwd="/", env=env, stdin=stdin is not None)
        connection = await self._started(exec_id)
        sending = asyncio.create_task(_send(connection, stdin)) if stdin is not None else None
        first = b""
        try:
            async for stream, data in frames(connection.reader):
                first = first or data
                await answer.feed(stream, data)
                if answer.ended.done():
                    return answer.ended.result()
        finally:
            if sending is not None:
                sending.cancel()
            connection.close()
        # Nobody told its end: the wrapper was killed, or never started.
        await answer.flush()
        code = 137 if await self._runs(exec_id) else await self._exit_code(exec_id)
        if code in _NEVER_STARTED and (reason := _refusal(first)):
            raise self._cannot_start("bash", reason)
        return Ended(str(code), "0")

    async def _create(
        self,
        argv: Sequence[str],
        *,
        user: str,
        cwd: str,
        env: Mapping[str, str],
        stdin: bool,
    ) -> str:
        try:
            made = await self.engine.call(
                lambda client: client.exec_create(
                    self.id,
                    list(argv),
                    stdin=stdin,
                    user=user or "0",
                    workdir=cwd,
                    environment=[f"{name}={value}" for name, value in env.items()],
                )
            )
        except EngineError as error:
            raise self._gone(error) from None
        return str(made["Id"])

    async def _started(self, exec_id: str) -> Connection:
        """Start a program, to the end even when cancelled: only what has started can be found and killed."""
        starting = asyncio.ensure_future(self._start(exec_id))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            if starting.exception() is None:
                starting.result().close()
            raise

    async def _start(self, exec_id: str) -> Connection:
        path = f"/v{await self.engine.version()}/exec/{exec_id}/start"
        try:
            return await open_connection(self.engine.address, path, body={"Detach": False, "Tty": False})
        except EngineError as error:
            raise self._gone(error) from None

    async def _drained(self, exec_id: str) -> bytes:
        connection = await self._start(exec_id)
        with contextlib.closing(connection):
            return b"".join([data async for _, data in frames(connection.reader)])

    async def _runs(self, exec_id: str) -> bool:
        """Say whether a program is running, once the engine has started it or knows that it cannot."""
        while True:
            facts = await self.engine.call(lambda client: client.exec_inspect(exec_id))
            if facts["Pid"] or facts["ExitCode"] is not None:
                return bool(facts["Running"])
            await asyncio.sleep(0.005)

    async def _exit_code(self, exec_id: str) -> int | None:
        try:
            facts = await self.engine.call(lambda client: client.exec_inspect(exec_id))
        except EngineError as error:
            if error.status == 404:
                return 137
            raise
        code: int | None = None if facts["Running"] else facts["ExitCode"]
        return code

    def _gone(self, error: EngineError) -> SandboxError:
        if error.status in _GONE:
            return SandboxError(f"sandbox {self.name} is gone: its container has ended")
        return error

    def _cannot_start(self, program: str, reason: str) -> SandboxError:
        return SandboxError(f"sandbox {self.name}: {program} cannot be started: {reason}", retryable=False)


async def _send(connection: Connection, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        await connection.write(data)
        connection.write_eof()


def _refusal(output: bytes) -> str | None:
    if not _REFUSAL.match(output):
        return None
    text = output.decode(errors="replace").strip().removesuffix(": unknown")
    return text.removeprefix("OCI runtime exec failed: exec failed: ")


def _short(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= 80 else f"{first[:77]}..."
