"""Programs that the engine starts in a container."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence

from pytest_benchflow.errors import SandboxError

from .connection import Connection, open_connection
from .engine import Engine, EngineError
from .frames import frames

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

    def __init__(self, engine: Engine, container_id: str, title: str, *, user: str) -> None:
        """Call the container `title` in messages; programs for which nobody names a user get `user`."""
        self._engine = engine
        self._container_id = container_id
        self._title = title
        self._user = user

    async def create(
        self, argv: Sequence[str], *, user: str, env: Mapping[str, str], cwd: str | None = None, stdin: bool = False
    ) -> str:
        """Prepare a program and return its number in the engine; without a directory it starts in the container's."""
        try:
            made = await self._engine.call(
                lambda client: client.exec_create(
                    self._container_id,
                    list(argv),
                    stdin=stdin,
                    user=user or self._user,
                    workdir=cwd,
                    environment=[f"{name}={value}" for name, value in env.items()],
                )
            )
        except EngineError as error:
            raise self._gone(error) from None
        return str(made["Id"])

    async def start(self, exec_id: str) -> Connection:
        """Start a program, to the end even when cancelled: only what has started can be found and killed."""
        starting = asyncio.ensure_future(self._start(exec_id))
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
        exec_id = await self.create(argv, user=user, env={}, cwd="/")
        with contextlib.closing(await self.start(exec_id)) as connection:
            output = b"".join([data async for _, data in frames(connection.reader)])
        return await self.exit_code(exec_id), output

    async def is_running(self, exec_id: str) -> bool:
        """Say whether a program runs, once the engine has started it or knows that it cannot."""
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

    async def _start(self, exec_id: str) -> Connection:
        path = f"/v{await self._engine.version()}/exec/{exec_id}/start"
        try:
            return await open_connection(self._engine.address, path, body={"Detach": False, "Tty": False})
        except EngineError as error:
            raise self._gone(error) from None

    def _gone(self, error: EngineError) -> SandboxError:
        if "paused" in error.reason:
            return SandboxError(f"{self._title} stands still: its container is paused")
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
