"""The container of a sandbox: bash commands in it, through PID 1 where that is faster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pytest_benchflow.errors import SandboxError

from .answer import Answer, Ended
from .channel import Channel
from .engine import Engine, EngineError
from .frames import Capture
from .guest import script
from .quoting import quote
from .shell import ROOT, Command, ShellContainer

_KILL_TIMEOUT_SEC = 20.0
#: A container that is killed ends the lines to its programs one after the other.
_DEATH_SEC = 0.5


class Container(ShellContainer):
    """Runs commands in one container whose PID 1 listens on `channel`."""

    def __init__(self, engine: Engine, container_id: str, name: str, channel: Channel) -> None:
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
        said = Capture()
        ended = await self.channel.kill(Answer(said.feed, said.feed), mark, began)
        if ended.status != "0":
            text = output.decode(errors="replace").strip()
            raise SandboxError(f"{self.title}: a command could not be killed {text}".rstrip())

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

    async def _run(self, command: Command, env: Mapping[str, str], answer: Answer, stdin: bytes | None) -> Ended:
        if command.user in ROOT and self.channel.idle:
            line = self.channel.line_for(answer, command.text, command.cwd, env, stdin)
            if line is not None:
                return await self.channel.run(answer, line)
        return await super()._run(command, env, answer, stdin)
