"""A program that runs beside an agent for as long as its session: started first, killed with it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_benchflow.agents.manifest import Companion
from pytest_benchflow.agents.template import Values
from pytest_benchflow.core.errors import HandshakeError

if TYPE_CHECKING:
    from pytest_benchflow.agents.base import AgentContext
    from pytest_benchflow.sandboxes import Process


_POLL_SEC = 0.2
_ASK_SEC = 10.0


def companion_values(context: AgentContext) -> Values:
    """Return what only a session knows: its directories, a port that is free here, and a token that nobody knows."""
    # Some containers share the host's network: a port that is free here is free there, and in all others anyway.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {"home": context.home, "cwd": context.cwd, "port": str(port), "token": secrets.token_urlsafe(24)}


class RunningCompanion:
    """The program, and what reads its output."""

    def __init__(self, process: Process, log: Callable[[bytes], None]) -> None:
        self._process = process
        self._readers = [
            asyncio.create_task(_drain(process.read, log)),
            asyncio.create_task(_drain(process.read_stderr, log)),
        ]

    @classmethod
    async def start(
        cls,
        companion: Companion,
        argv: Sequence[str],
        context: AgentContext,
        env: Mapping[str, str],
        port: str,
        log: Callable[[bytes], None],
    ) -> RunningCompanion:
        """Start the program and wait until it listens."""
        process = await context.sandbox.open_process(argv, user=context.user, cwd=context.cwd, env=env)
        running = cls(process, log)
        try:
            await running._wait(companion, context, port)
        except BaseException:
            await running.stop()
            raise
        return running

    async def stop(self) -> None:
        """Kill the program and everything it started; idempotent."""
        with contextlib.suppress(Exception):
            await self._process.kill()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _wait(self, companion: Companion, context: AgentContext, port: str) -> None:
        program = companion.launch[0]
        ended = asyncio.create_task(self._process.wait())
        try:
            async with asyncio.timeout(companion.ready_timeout_sec):
                while not await _listens(context, port):
                    await asyncio.wait([ended], timeout=_POLL_SEC)
                    if ended.done():
                        raise HandshakeError(f"{program} exited with status {ended.result()} before it listened")
        except TimeoutError:
            limit = companion.ready_timeout_sec
            raise HandshakeError(f"{program} did not listen on port {port} within {limit:g} s") from None
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)


async def _listens(context: AgentContext, port: str) -> bool:
    result = await context.sandbox.exec(f"exec 3<>/dev/tcp/127.0.0.1/{port}", user=context.user, timeout_sec=_ASK_SEC)
    return result.return_code == 0


async def _drain(read: Callable[[], object], log: Callable[[bytes], None]) -> None:
    while data := await read():  # type: ignore[misc]
        log(data)
