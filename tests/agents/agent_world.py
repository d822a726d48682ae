"""A sandbox that runs programs on this machine, below one directory, and remembers what it was asked to do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_benchflow.agents import AgentContext, AgentRequest, ModelAccess
from pytest_benchflow.core.types import Event
from pytest_benchflow.sandboxes import Capabilities, ExecResult, Mount
from pytest_benchflow.tasks import Task, load_task


class Child:
    """A process with all its children; implements `Process`."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._child, self._stdin, self.read, self.read_stderr = child, child.stdin, self._read, self._read_stderr

    async def _read(self, n: int = 65536) -> bytes:
        assert self._child.stdout is not None
        return await self._child.stdout.read(n)

    async def _read_stderr(self, n: int = 65536) -> bytes:
        assert self._child.stderr is not None
        return await self._child.stderr.read(n)

    @property
    def alive(self) -> bool:
        return self._child.returncode is None

    async def write(self, data: bytes) -> None:
        self._stdin.write(data)
        await self._stdin.drain()

    async def close_stdin(self) -> None:
        self._stdin.close()

    async def wait(self) -> int:
        return await self._child.wait()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        await self._child.wait()


@dataclass
class World:
    """Implements `Sandbox` as far as agents use it."""

    root: Path
    id: str = "world"
    commands: list[tuple[str, str | int | None]] = field(default_factory=list)
    argvs: list[list[str]] = field(default_factory=list)
    children: list[Child] = field(default_factory=list)
    capabilities: Capabilities = field(default_factory=Capabilities)
    notes: Sequence[str] = ()

    @property
    def workdir(self) -> str:
        return str(self.root / "app")

    async def exec(
        self,
        cmd: str,
        *,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: float | None = None,
        stdin: bytes | None = None,
    ) -> ExecResult:
        self.commands.append((cmd, user))
        child = await asyncio.create_subprocess_exec("bash", "-c", cmd, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd)
        out, err = await child.communicate(stdin)
        return ExecResult(child.returncode or 0, out.decode(), err.decode())

    async def open_process(
        self,
        argv: Sequence[str],
        *,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Child:
        self.argvs.append([*argv])
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env={"PATH": os.environ["PATH"], **(env or {})},
            start_new_session=True,
        )
        self.children.append(Child(child))
        return self.children[-1]

    async def upload_dir(self, source: Path, target: str) -> None:
        raise AssertionError("nothing is uploaded here")

    upload_file = download_file = download_dir = start = stop = upload_dir


@dataclass
class Bundled:
    """Stands for an installed bundle."""

    prefix: str
    mounted: Mount = field(default_factory=lambda: Mount(Path("/host"), "/opt/mine", "key"))
    put: list[str] = field(default_factory=list)

    def mount(self) -> Mount:
        return self.mounted

    async def deploy(self, sandbox: World, *, log: Path | None = None) -> str:
        self.put.append(sandbox.id)
        return self.prefix


@dataclass
class Store:
    """Stands for the store of bundles."""

    bundle: Bundled
    asked: list[object] = field(default_factory=list)

    async def provide(self, spec: object, *, log: Path | None = None) -> Bundled:
        self.asked.append((spec, log))
        return self.bundle


def context_of(
    world: World, task: Path, access: ModelAccess, request: AgentRequest, events: list[Event], **more: object
) -> AgentContext:
    """Return what an agent gets for one session."""
    loaded: Task = load_task(task)
    (world.root / "app").mkdir(parents=True, exist_ok=True)
    return AgentContext(
        sandbox=world,  # type: ignore[arg-type]
        task=loaded,
        step=loaded.steps[0],
        request=request,
        access=access,
        user="agent",
        home=str(world.root / "home"),
        cwd=world.workdir,
        log_dir=world.root / "logs",
        emit=events.append,
        mcp_servers=loaded.config.environment.mcp_servers,
        **more,  # type: ignore[arg-type]
    )
