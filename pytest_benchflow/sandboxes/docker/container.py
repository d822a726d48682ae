"""The container of a sandbox: bash in it, made and attached with nothing left if that fails."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pytest_benchflow.core.capture import Capture
from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.base import KilledProgram
from pytest_benchflow.sandboxes.docker.channel import Answer, Channel, CommandEnd, quote
from pytest_benchflow.sandboxes.docker.client import DockerEngine, EngineError
from pytest_benchflow.sandboxes.docker.connection import open_connection
from pytest_benchflow.sandboxes.docker.exec import ROOT, Command, ShellContainer
from pytest_benchflow.sandboxes.docker.guest import script

_KILL_TIMEOUT_SEC = 20.0
_END_TIMEOUT_SEC = 30.0
#: A container that is killed ends the lines to its programs one after the other.
_DEATH_SEC = 0.5


class Container(ShellContainer):
    """Runs commands in one container whose PID 1 listens on `channel`."""

    def __init__(self, engine: DockerEngine, container_id: str, name: str, channel: Channel) -> None:
        super().__init__(engine, container_id, f"sandbox {name}", user="0")
        self._channel = channel
        self._closed = False

    @property
    def channel(self) -> Channel:
        """The line to PID 1."""
        return self._channel

    def quote(self, word: str) -> str:
        """Return a word as bash reads it back, in plain ASCII whatever bytes it holds."""
        return quote(word)

    async def kill(self, mark: str, began: float, user: str) -> None:
        """Kill every process of the command that began at a moment of the loop's clock; return when they are gone."""
        argv = [self.channel.bash, "-p", "-c", f"{script('common', 'kill')}bf_kill {mark} {self.channel.ticks(began)}"]
        try:
            async with asyncio.timeout(_KILL_TIMEOUT_SEC):
                # Only its own user may read a process's environment, and only root reaches what changed its user.
                for killer in (user, "0") if user not in ROOT else ("0",):
                    await self._kill_as(killer, argv, mark, began)
                await self.channel.poke()
        except TimeoutError:
            raise SandboxError(f"{self.title}: a command could not be killed within {_KILL_TIMEOUT_SEC:g} s") from None

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
        answer = Capture()
        ended = await self.channel.kill(Answer(answer.feed, answer.feed), mark, began)
        if ended.status != "0":
            text = output.decode(errors="replace").strip()
            raise SandboxError(f"{self.title}: a command could not be killed {text}".rstrip())

    async def end_programs(self, keep: Collection[str], uid: int) -> list[KilledProgram]:
        """Kill every process but PID 1 and those named, and return them; SandboxError if one survives."""
        answer = Answer(_discard, _discard)
        try:
            async with asyncio.timeout(_END_TIMEOUT_SEC):
                ended = await self.channel.purge(answer, keep, uid)
        except TimeoutError:
            raise SandboxError(f"{self.title}: programs did not end within {_END_TIMEOUT_SEC:g} s") from None
        if ended.status != "0":
            raise SandboxError(f"{self.title}: {ended.status} programs cannot be killed")
        rows = [word.split(":", 2) for word in ended.note.split()]
        return [KilledProgram(f"{row[0]}:{row[1]}", row[2]) for row in rows if len(row) == 3]

    async def has_ended(self) -> bool:
        """Ask the engine whether the container has ended."""
        try:
            facts = await self.engine.call(lambda client: client.inspect_container(self.id))
        except EngineError as error:
            if error.status != 404:
                raise
            return True
        return not facts["State"]["Running"]

    async def is_dying(self) -> bool:
        """Wait a moment for the end of the line to PID 1."""
        return await self.channel.ends(_DEATH_SEC)

    def close(self) -> None:
        """Let go of every connection: the container ends, if it has not been kept."""
        self._closed = True
        super().close()
        self.channel.close()

    def _argv(self, nonce: str, command: Command) -> list[str]:
        return [self.channel.bash, "-c", script("common", "exec"), "bash", nonce, command.cwd, command.text]

    async def _run(self, command: Command, env: Mapping[str, str], answer: Answer, stdin: bytes | None) -> CommandEnd:
        if command.user in ROOT and self.channel.idle:
            line = self.channel.line_for(answer, command.text, command.cwd, env, stdin)
            if line is not None:
                return await self.channel.run(answer, line)
        return await super()._run(command, env, answer, stdin)


_REMOVE_TIMEOUT_SEC = 60.0
_REMOVE_ATTEMPTS = 4
_NO_BASH = re.compile(r'exec: "bash".*(not found|no such file)', re.IGNORECASE)


async def launch(
    engine: DockerEngine, config: dict[str, Any], *, container_name: str, name: str, lease_sec: int
) -> Container:
    """Start a container and return it once PID 1 answers."""
    await engine.finish(lambda client: client.create_container_from_config(config, container_name))  # type: ignore[no-untyped-call]
    try:
        # Podman prepares a program when somebody attaches to it, and so may refuse it here already.
        channel = await attach(engine, container_name, name)
        try:
            await engine.finish(lambda client: client.start(container_name))
            await channel.open(lease_sec)
        except BaseException:
            channel.close()
            raise
    except EngineError as error:
        raise _start_error(error, config, name) from None
    return Container(engine, container_name, name, channel)


async def attach(engine: DockerEngine, container_id: str, name: str) -> Channel:
    """Open a line to PID 1 of a container."""
    path = f"/v{await engine.version()}/containers/{container_id}/attach"
    query = {"stream": "1", "stdin": "1", "stdout": "1", "stderr": "1"}
    return Channel(await open_connection(engine.address, path, query=query), name)


async def remove(engine: DockerEngine, container_id: str) -> None:
    """Kill and remove a container with its anonymous volumes, and return when it is gone; idempotent."""
    failures = 0
    async with asyncio.timeout(_REMOVE_TIMEOUT_SEC):
        while True:
            try:
                await engine.call(lambda client: client.remove_container(container_id, force=True, v=True))
                return
            except EngineError as error:
                if error.status == 404:
                    return
                # 409: it ended by itself and is being removed already. 500: a busy file system lets go in a while.
                failures += error.status != 409
                if failures == _REMOVE_ATTEMPTS:
                    raise
                await asyncio.sleep(0.05 if error.status == 409 else 0.5)


def _start_error(error: EngineError, config: dict[str, Any], name: str) -> SandboxError:
    if _NO_BASH.search(error.reason):
        return SandboxError(
            f"image {config['Image']} has no bash, which every sandbox needs",
            advice="install it in the Dockerfile",
            retryable=False,
        )
    return SandboxError(f"sandbox {name} did not start: {error.reason}")


async def _discard(data: bytes) -> None:
    """Drop what PID 1 prints while it kills."""
