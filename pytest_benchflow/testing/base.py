"""What every part of the sandbox suite stands on: a backend, started sandboxes, and a look at the host."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio

from pytest_benchflow.sandboxes import Backend, Sandbox, SandboxSpec
from pytest_benchflow.testing.runner import make_backend

GONE_WITHIN_SEC = 15.0


@pytest.mark.asyncio(loop_scope="class")
class SandboxSuite:
    """Overridable knobs and fixtures; a subclass that names a `factory` has all it needs."""

    factory: ClassVar[str] = ""
    """`module:callable` that makes the backend without arguments; a second process imports it too."""
    options: ClassVar[Mapping[str, str]] = {}
    """Values of the backend's options, as users would write them."""
    spec: ClassVar[SandboxSpec] = SandboxSpec(name="conformance")
    """The sandbox that tests start; its image needs bash, coreutils, python3 and a user called nobody."""
    enforces_memory: ClassVar[bool] = True
    enforces_cpus: ClassVar[bool] = True
    enforces_pids: ClassVar[bool] = True
    pipe_bytes: ClassVar[int] = 100 << 20
    big_file_bytes: ClassVar[int] = 1 << 30
    start_timeout_sec: ClassVar[float] = 120.0

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def backend(cls) -> AsyncIterator[Backend]:
        """The backend under test, open; one for all tests of a class, as it would serve a whole run."""
        backend = cls.make_backend()
        await backend.preflight()
        yield backend
        await backend.aclose()

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def shared(cls, backend: Backend) -> AsyncIterator[Sandbox]:
        """A started sandbox for the tests of a class that leave no process, and nothing in the way of the others."""
        async with cls.started(backend) as sandbox:
            yield sandbox

    @pytest_asyncio.fixture(loop_scope="class")
    async def sandbox(self, backend: Backend) -> AsyncIterator[Sandbox]:
        """A started sandbox for one test alone."""
        async with self.started(backend) as sandbox:
            yield sandbox

    @pytest.fixture
    def token(self) -> str:
        """A word that finds this test's processes on the host."""
        return f"bf-conformance-{uuid.uuid4().hex}"

    @pytest_asyncio.fixture(loop_scope="class")
    async def stranger(self, token: str) -> AsyncIterator[str]:
        """The name of a process of this machine, which no sandbox may see."""
        process = await asyncio.create_subprocess_exec("bash", "-c", f"exec -a {token} sleep 600")
        yield token
        process.kill()
        await process.wait()

    async def require_isolation(self, sandbox: Sandbox, stranger: str) -> None:
        """Fail before harm is done where a sandbox shares processes with this machine."""
        seen = (await sandbox.exec("cat /proc/[0-9]*/cmdline", user=0)).stdout
        assert stranger not in seen, "the sandbox sees processes of this machine"

    @classmethod
    def make_backend(cls) -> Backend:
        """Make the backend under test."""
        if ":" not in cls.factory:
            pytest.fail('set `factory = "module:callable"` on the test class', pytrace=False)
        return make_backend(cls.factory, cls.options)

    @classmethod
    @asynccontextmanager
    async def started(cls, backend: Backend, **changes: object) -> AsyncIterator[Sandbox]:
        """Start another sandbox, with changes to its spec."""
        sandbox = backend.create(replace(cls.spec, **changes))  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(cls.start_timeout_sec):
                await sandbox.start()
            yield sandbox
        finally:
            await sandbox.stop()

    def host_processes(self, token: str) -> list[str]:
        """List this machine's processes with the token; override it where sandboxes run elsewhere."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            # The tests' own helpers carry the token inside longer words.
            if token.encode() in words:
                found.append(path.parent.name)
        return found

    async def wait_until_gone(self, token: str) -> None:
        """Fail if a process with the token is still there after a while."""
        await eventually(lambda: not self.host_processes(token), f"processes of {token} are still there")


async def eventually(condition: Callable[[], object], message: str) -> None:
    """Wait until a condition holds; fail with the message if it never does."""
    deadline = time.monotonic() + GONE_WITHIN_SEC
    while not condition():
        assert time.monotonic() < deadline, message
        await asyncio.sleep(0.05)


async def read_all(read: Callable[[], Awaitable[bytes]]) -> bytes:
    """Read a stream to its end."""
    parts = []
    while data := await read():
        parts.append(data)
    return b"".join(parts)


_COUNT = """
word=sleep n=0
for file in /proc/[0-9]*/cmdline; do
  case $(tr '\\0' ' ' <"$file") in *"$word 600 "*) n=$((n + 1)) ;; esac
done 2>/dev/null
echo $n
"""


async def count_sleepers(sandbox: Sandbox) -> int:
    """Count the processes with `sleep 600` in their command line, without tools that small images lack."""
    return int((await sandbox.exec(_COUNT)).stdout)
