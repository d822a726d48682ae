"""A running container: commands in it, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes.base import ExecResult

from .answer import Answer, Ended, Sink
from .channel import Channel
from .connection import Connection
from .engine import Engine, EngineError
from .execs import KILLED, NEVER_STARTED, Execs, refusal
from .frames import STDERR, STDOUT, Capture, frames
from .guest import script
from .process import DockerProcess

_ROOT = frozenset({"", "0", "root", "0:0", "root:root"})
_KILL_TIMEOUT_SEC = 20.0
_REFUSAL_SEC = 1.0
#: A container that is killed ends the lines to its programs one after the other.
_DEATH_SEC = 0.5


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
        self._execs = Execs(engine, container_id, name)
        self._closed = False
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
                    raise self._cannot_start(argv[0], reason)
        except asyncio.CancelledError:
            await asyncio.shield(kill())
            raise
        return process

    async def kill(self, mark: str, began: float, user: str) -> None:
        """Kill every process of the command that began at a moment of the loop's clock; return when they are gone."""
        argv = [self.channel.bash, "-p", "-c", f"{script('common', 'kill')}bf_kill {mark} {self.channel.ticks(began)}"]
        try:
            async with asyncio.timeout(_KILL_TIMEOUT_SEC):
                # Only its own user may read a process's environment, and only root reaches what changed its user.
                for killer in (user, "0") if user not in _ROOT else ("0",):
                    await self._kill_as(killer, argv, mark, began)
        except TimeoutError:
            raise SandboxError(
                f"sandbox {self.name}: a command could not be killed within {_KILL_TIMEOUT_SEC:g} s"
            ) from None

    async def _kill_as(self, user: str, argv: Sequence[str], mark: str, began: float) -> None:
        try:
            code, output = await self._execs.run(argv, user=user)
        except SandboxError as error:
            if self.channel.closed or self._closed:
                return
            code, output = None, str(error).encode()
        if code != 0:
            await self._kill_without_fork(mark, began, output)

    async def _kill_without_fork(self, mark: str, began: float, output: bytes) -> None:
        """Let PID 1 do it: where the process limit is reached, nothing new can be started."""
        said = Capture()
        ended = await self.channel.kill(Answer(said.feed, said.feed), mark, began)
        if ended.status != "0":
            text = output.decode(errors="replace").strip()
            raise SandboxError(f"sandbox {self.name}: a command could not be killed {text}".rstrip())

    async def check_alive(self) -> None:
        """Raise SandboxError if the container has ended: what it then says of programs and files means nothing."""
        try:
            facts = await self.engine.call(lambda client: client.inspect_container(self.id))
            alive = bool(facts["State"]["Running"])
        except EngineError as error:
            if error.status != 404:
                raise
            alive = False
        if not alive:
            raise self._gone()

    def close(self) -> None:
        """Let go of every connection: the container ends, if it has not been kept."""
        self._closed = True
        for process in self._processes:
            process.close()
        self.channel.close()

    async def _run(self, command: Command, env: Mapping[str, str], answer: Answer, stdin: bytes | None) -> Ended:
        if command.user in _ROOT and self.channel.idle:
            line = self.channel.line_for(answer, command.text, command.cwd, env, stdin)
            if line is not None:
                return await self.channel.run(answer, line)
        return await self._run_by_engine(command, env, answer, stdin)

    async def _run_by_engine(
        self, command: Command, env: Mapping[str, str], answer: Answer, stdin: bytes | None
    ) -> Ended:
        argv = [self.channel.bash, "-c", script("common", "exec"), "bash", answer.nonce, command.cwd, command.text]
        exec_id = await self._execs.create(argv, user=command.user, cwd="/", env=env, stdin=stdin is not None)
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
        if await self.channel.ends(_DEATH_SEC):
            raise self._gone()
        await answer.flush()
        code = KILLED if await self._execs.is_running(exec_id) else await self._execs.exit_code(exec_id)
        if code in (1, *NEVER_STARTED) and (reason := refusal(first)):
            raise self._cannot_start("bash", reason)
        return Ended(str(code), "0")

    def _gone(self) -> SandboxError:
        return SandboxError(f"sandbox {self.name} is gone: its container has ended")

    def _cannot_start(self, program: str, reason: str) -> SandboxError:
        return SandboxError(f"sandbox {self.name}: {program} cannot be started: {reason}", retryable=False)


async def _send(connection: Connection, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        await connection.write(data)
        connection.write_eof()


def _short(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= 80 else f"{first[:77]}..."
