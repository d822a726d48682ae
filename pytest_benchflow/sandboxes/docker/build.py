"""Build one image and tell what went wrong, with the Dockerfile's line and the end of the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Mapping
from typing import BinaryIO

from pytest_benchflow.errors import BuildError

from .build_log import BuildLog
from .connection import open_connection
from .context import BuildContext
from .engine import Engine, EngineError

_NO_BUILDX = "buildx component is missing"


class Build:
    """One build of a context."""

    def __init__(
        self,
        engine: Engine,
        context: BuildContext,
        *,
        tag: str,
        labels: Mapping[str, str],
        network: str | None,
        is_podman: bool = False,
    ) -> None:
        self._engine = engine
        self._context = context
        self._tag = tag
        self._labels = labels
        self._network = network
        # Podman's own builder reads what in Docker only BuildKit does, and Podman has no BuildKit.
        self._by_command = context.needs_buildkit and not is_podman
        self._log = BuildLog(context)

    async def run(self, *, timeout_sec: float, fresh: bool = False) -> None:
        """Build within the time given; `fresh` uses no cached layer. Cancelled, the engine stops building."""
        # A file without a name goes with the process, however that ends.
        with tempfile.TemporaryFile() as packed:
            try:
                async with asyncio.timeout(timeout_sec):
                    await self._engine.thread(lambda: self._context.pack(packed))
                    packed.seek(0)
                    await (self._with_buildkit if self._by_command else self._with_engine)(packed, fresh)
            except TimeoutError:
                raise self._failed(f"the build took longer than {timeout_sec:g} s; raise build_timeout_sec") from None

    async def _with_engine(self, packed: BinaryIO, fresh: bool) -> None:
        query = {"t": self._tag, "rm": "1", "forcerm": "1", "labels": json.dumps(dict(self._labels))}
        query |= {"nocache": "1"} if fresh else {}
        query |= {"networkmode": self._network} if self._network else {}
        query |= {"buildargs": json.dumps(await self._platform())} if self._context.needs_platform else {}
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
                if reason := self._log.read(line):
                    raise self._failed(reason)

    async def _platform(self) -> dict[str, str]:
        """Return the arguments that BuildKit would give to every build."""
        version = await self._engine.call(lambda client: client.version())
        facts = {"PLATFORM": f"{version['Os']}/{version['Arch']}", "OS": version["Os"], "ARCH": version["Arch"]}
        return {f"{side}{name}": value for side in ("BUILD", "TARGET") for name, value in facts.items()}

    async def _with_buildkit(self, packed: BinaryIO, fresh: bool) -> None:
        argv = ["docker", "build", "--progress=plain", "-t", self._tag]
        argv += [word for name, value in self._labels.items() for word in ("--label", f"{name}={value}")]
        argv += ["--no-cache"] if fresh else []
        argv += ["--network", self._network] if self._network else []
        env = {**self._engine.address.environment(), "DOCKER_BUILDKIT": "1"}
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
            raise self._lacks_buildkit("there is no docker command here") from None
        try:
            assert program.stdout is not None
            async for line in program.stdout:
                self._log.read_plain(line.decode(errors="replace").rstrip())
            code = await program.wait()
        finally:
            if program.returncode is None:
                os.killpg(program.pid, signal.SIGKILL)
                await asyncio.shield(program.wait())
        if code != 0:
            reason = self._log.buildkit_error() or f"docker build ended with status {code}"
            if _NO_BUILDX in reason:
                raise self._lacks_buildkit("the docker command has no buildx")
            raise self._failed(reason)

    def _lacks_buildkit(self, lack: str) -> BuildError:
        where = f"{self._context.name}:{self._context.buildkit_line}"
        return BuildError(f"{where}: this step needs BuildKit, and {lack}", advice="install the Docker CLI with buildx")

    def _failed(self, reason: str) -> BuildError:
        return BuildError(self._log.explain(reason))
