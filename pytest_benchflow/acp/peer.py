"""The other side of the connection: the agent's process, its protocol and what it prints beside it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pytest_benchflow.acp.framing import Message
from pytest_benchflow.acp.transport import PipeTransport
from pytest_benchflow.errors import SandboxError
from pytest_benchflow.events import Json
from pytest_benchflow.text import one_line, printable

if TYPE_CHECKING:
    from acp.connection import Connection

    from pytest_benchflow.sandboxes import Process

_TAIL_BYTES = 4000
_WAIT_SEC = 5.0
_KILL_SEC = 30.0


class Rejected(Exception):
    """The agent answered a request with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Gone(Exception):
    """The agent ended or closed its output."""


class Peer:
    """Owns the process from here on; `stop()` ends everything."""

    def __init__(
        self,
        process: Process,
        *,
        seen: Callable[[Message], bool],
        permission: Callable[[Json], Awaitable[Json]],
        log: Callable[[bytes], None],
        max_line_bytes: int,
    ) -> None:
        # Heavy: imported with the first session, not with this module.
        from acp.connection import Connection
        from acp.exceptions import RequestError

        self._process = process
        self._log = log
        self._tail = b""
        self._stopped = False
        self._broken = asyncio.Event()
        self._request_error = RequestError
        self._permission = permission
        self._transport = PipeTransport(process, seen=seen, log=self._note, max_line_bytes=max_line_bytes)
        self._connection: Connection = Connection(self._handle, self._transport)
        self._stderr = asyncio.create_task(self._drain())

    async def request(self, method: str, params: Json) -> dict[str, Json]:
        """Return the agent's answer."""
        sent = asyncio.ensure_future(self._connection.send_request(method, params))
        broken = asyncio.ensure_future(self._broken.wait())
        try:
            await asyncio.wait([sent, broken], return_when=asyncio.FIRST_COMPLETED)
            if self.failure is not None:
                raise self.failure
            result = await sent
        except self._request_error as error:
            raise Rejected(error.code, _told(str(error), error.data)) from None
        except ConnectionError as error:
            raise self.failure or Gone() from error
        finally:
            for task in (sent, broken):
                task.cancel()
            await asyncio.wait([sent, broken])
            if not sent.cancelled():
                sent.exception()
        return result if isinstance(result, dict) else {}

    async def notify(self, method: str, params: Json) -> None:
        """Tell the agent something, if it still listens."""
        with contextlib.suppress(ConnectionError):
            await self._connection.send_notification(method, params)

    def fail(self, error: Exception) -> None:
        """End the connection because of a failure on this side."""
        self._transport.fail(error)
        self._broken.set()

    @property
    def failure(self) -> Exception | None:
        """What went wrong on this side, or between the sides."""
        return self._transport.failure

    def last_words(self, lines: int = 3) -> str:
        """Return the last lines of the agent's standard error, as one."""
        kept = printable(self._tail.decode("utf-8", "replace")).strip().splitlines()[-lines:]
        return one_line(" | ".join(line.strip() for line in kept if line.strip()), 500)

    async def obituary(self) -> str:
        """Say how the agent ended, once its output did."""
        status: int | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_SEC):
                status = await self._process.wait()
                await asyncio.wait([self._stderr], timeout=1)
        how = "closed its output" if status is None else f"exited with status {status}"
        words = self.last_words(1)
        return f"{how}: {words}" if words else how

    async def stop(self) -> None:
        """Kill the whole process tree and end the connection; idempotent."""
        if self._stopped:
            return
        try:
            async with asyncio.timeout(_KILL_SEC):
                await self._process.kill()
            self._stopped = True
        except TimeoutError:
            raise SandboxError(f"the agent could not be killed within {_KILL_SEC:g} s") from None
        finally:
            await asyncio.wait([self._stderr], timeout=1)
            self._stderr.cancel()
            await self._connection.close()

    async def _handle(self, method: str, params: Json, is_notification: bool) -> Json:
        if method != "session/request_permission":
            raise self._request_error.method_not_found(method)
        try:
            return await self._permission(params)
        except Exception as error:
            self.fail(error)
            raise self._request_error.internal_error() from None

    async def _drain(self) -> None:
        """Read standard error for as long as there is any: an agent with a full pipe stands still."""
        with contextlib.suppress(OSError, SandboxError):
            while data := await self._process.read_stderr():
                self._tail = (self._tail + data)[-_TAIL_BYTES:]
                self._note(data)
                # A pipe that is never empty never makes its reader wait.
                await asyncio.sleep(0)

    def _note(self, data: bytes) -> None:
        try:
            self._log(data)
        except Exception as error:
            self.fail(error)


def _told(message: str, data: Json) -> str:
    """Return an error's text with what its details add."""
    if data in (None, "", [], {}):
        return message
    more = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return message if more in message else f"{message}: {more}"
