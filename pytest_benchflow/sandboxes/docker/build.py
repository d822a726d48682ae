"""Build one image and tell what went wrong, with the Dockerfile's line and the end of the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import tempfile
from collections import deque
from collections.abc import Mapping
from typing import BinaryIO

from pytest_benchflow.errors import BuildError

from .connection import open_connection
from .context import BuildContext
from .engine import Engine, EngineError

_TAIL_LINES = 30
_STEP = re.compile(r"Step (\d+)/\d+ : (.*)")
_STATUS = re.compile(r"returned a non-zero code: (\d+)$")
_BUILDKIT_LINE = re.compile(r"^Dockerfile:(\d+)$|dockerfile parse error (?:on )?line (\d+)")
_NOISE = re.compile(r"\x1b\[[0-9;]*m")
_CHATTER = (" --->", "Removing intermediate container", "Removed intermediate container")


class Build:
    """One build of a context."""

    def __init__(
        self, engine: Engine, context: BuildContext, *, tag: str, labels: Mapping[str, str], network: str | None
    ) -> None:
        self._engine = engine
        self._context = context
        self._tag = tag
        self._labels = labels
        self._network = network
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._line = 1
        self._step = ""

    async def run(self, *, timeout_sec: float, fresh: bool = False) -> None:
        """Build within the time given; `fresh` uses no cached layer. Cancelled, the engine stops building."""
        # A file without a name goes with the process, however that ends.
        with tempfile.TemporaryFile() as packed:
            try:
                async with asyncio.timeout(timeout_sec):
                    await self._engine.thread(lambda: self._context.pack(packed))
                    packed.seek(0)
                    await (self._with_buildkit if self._context.needs_buildkit else self._with_engine)(packed, fresh)
            except TimeoutError:
                raise self._failed(f"the build took longer than {timeout_sec:g} s; raise build_timeout_sec") from None

    async def _with_engine(self, packed: BinaryIO, fresh: bool) -> None:
        query = {"t": self._tag, "rm": "1", "forcerm": "1", "labels": json.dumps(dict(self._labels))}
        query |= {"nocache": "1"} if fresh else {}
        query |= {"networkmode": self._network} if self._network else {}
        try:
            connection = await open_connection(
                self._engine.address,
                f"/v{await self._engine.version()}/build",
                query=query,
                file=packed,
                upgrade=False,
            )
        except EngineError as error:
            raise self._failed(error.reason) from None
        with contextlib.closing(connection):
            async for line in connection.lines():
                self._read(line)

    def _read(self, line: bytes) -> None:
        message = json.loads(line) if line.strip() else {}
        for text in str(message.get("stream", "")).splitlines():
            if match := _STEP.match(text):
                self._line, self._step = self._context.line_of(int(match[1])), match[2]
                self._tail.clear()
            elif (text := _NOISE.sub("", text)).strip() and not text.startswith(_CHATTER):
                self._tail.append(text)
        if error := message.get("error"):
            match = _STATUS.search(error)
            raise self._failed(f"exit status {match[1]}" if match else error.strip())

    async def _with_buildkit(self, packed: BinaryIO, fresh: bool) -> None:
        argv = ["docker", "build", "--progress=plain", "-t", self._tag]
        argv += [word for name, value in self._labels.items() for word in ("--label", f"{name}={value}")]
        argv += ["--no-cache"] if fresh else []
        argv += ["--network", self._network] if self._network else []
        env = {**os.environ, "DOCKER_BUILDKIT": "1", "DOCKER_HOST": self._engine.address.url}
        try:
            program = await asyncio.create_subprocess_exec(
                *argv,
                "-",
                stdin=packed,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise self._failed(
                "the Dockerfile needs BuildKit, and there is no docker command here; install the Docker CLI with buildx"
            ) from None
        try:
            assert program.stdout is not None
            async for line in program.stdout:
                self._read_plain(line.decode(errors="replace").rstrip())
            code = await program.wait()
        finally:
            if program.returncode is None:
                os.killpg(program.pid, signal.SIGKILL)
                await asyncio.shield(program.wait())
        if code != 0:
            reason = next((line for line in reversed(self._tail) if line.startswith("ERROR: ")), f"status {code}")
            raise self._failed(f"docker build: {reason.removeprefix('ERROR: ')}")

    def _read_plain(self, line: str) -> None:
        if match := _BUILDKIT_LINE.search(line):
            self._line = int(match[1] or match[2])
        if line.strip():
            self._tail.append(line)

    def _failed(self, reason: str) -> BuildError:
        where = f"{self._context.name}:{self._line}"
        first = f"{where}: {self._step}: {reason}" if self._step else f"{where}: {reason}"
        return BuildError("\n    ".join([first, *self._tail]))
