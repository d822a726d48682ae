"""A task and a sandbox of its own, to be used by hand or handed to an agent."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from pytest_benchflow.core.errors import BadType, UsageError
from pytest_benchflow.rollout import RolloutConfig, agent_spec
from pytest_benchflow.sandboxes import SandboxRegistry, service_of
from pytest_benchflow.tasks import load_task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_benchflow.sandboxes import (
        Backend,
        BackendOption,
        Capabilities,
        ExecResult,
        Leftovers,
        Sandbox,
        SandboxSpec,
    )
    from pytest_benchflow.tasks import Task


_LIVE = "environment"


class Environment:
    """The sandbox that a task asks for; `async with` starts and stops it."""

    def __init__(self, task: Task, sandbox: str = "auto", rollout_name: str | None = None) -> None:
        self.task = task
        self.sandbox = sandbox
        self.rollout_name = rollout_name
        self._backend: Backend | None = None
        self._inner: Sandbox | None = None

    @classmethod
    def from_task(
        cls,
        task_path: str | Path,
        sandbox: str | None = None,
        rollout_name: str | None = None,
        *,
        backend: str | None = None,
    ) -> Environment:
        """Return the environment of a task, not started yet; `backend` is an older word for `sandbox`."""
        if sandbox is not None and backend not in (None, sandbox):
            raise BadType("from_task() got sandbox and backend, which are the same", advice="keep sandbox=")
        return cls(load_task(task_path), sandbox or backend or "auto", rollout_name)

    @property
    def task_path(self) -> Path:
        """The directory of the task."""
        return self.task.path

    @property
    def is_started(self) -> bool:
        """Whether its sandbox is up."""
        return self._inner is not None

    @property
    def inner(self) -> Sandbox:
        """The sandbox."""
        if self._inner is None:
            raise UsageError("the environment is not started", advice="await start() first, or use async with")
        return self._inner

    async def start(self) -> None:
        """Start the sandbox; a started one stays as it is."""
        if self._inner is not None:
            return
        config = RolloutConfig(task_path=self.task.path)
        self._backend = SandboxRegistry().create(self.sandbox)
        await self._backend.preflight()
        name = self.rollout_name or self.task.short_name
        spec = agent_spec(self.task, config, name, build_dir=self.task.environment_dir)
        inner = self._backend.create(spec)
        try:
            await inner.start()
        except BaseException:
            await inner.stop()
            await self._backend.aclose()
            raise
        self._inner = inner

    async def stop(self, *, delete: bool = True) -> None:
        """Stop the sandbox; idempotent."""
        if self._inner is not None and self._backend is not None:
            inner, self._inner = self._inner, None
            await inner.stop(delete=delete)
            await self._backend.aclose()

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
        """Run a bash command line in the sandbox."""
        return await self.inner.exec(cmd, user=user, cwd=cwd, env=env, timeout_sec=timeout_sec, stdin=stdin)

    async def exec_in_service(self, service: str, cmd: str, *, timeout_sec: float | None = None) -> ExecResult:
        """Run a command in a service of the environment; `main` is the sandbox itself."""
        return await service_of(self.inner, service).exec(cmd, timeout_sec=timeout_sec)

    async def upload_file(self, source: str | Path, target: str) -> None:
        """Copy a host file into the sandbox."""
        await self.inner.upload_file(Path(source), target)

    async def upload_dir(self, source: str | Path, target: str) -> None:
        """Copy the content of a host directory into the sandbox."""
        await self.inner.upload_dir(Path(source), target)

    async def download_file(self, source: str, target: str | Path) -> None:
        """Copy a file out of the sandbox."""
        await self.inner.download_file(source, Path(target))

    async def download_dir(self, source: str, target: str | Path) -> None:
        """Copy the content of a directory out of the sandbox."""
        await self.inner.download_dir(source, Path(target))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def as_sandbox(self) -> tuple[str, SandboxRegistry]:
        """Return the word and the registry by which a rollout gets this environment: a started one as it is."""
        registry = SandboxRegistry()
        if self._inner is None or self._backend is None:
            return self.sandbox, registry
        live = _LiveBackend(self._backend.name, self._inner)
        registry.register(_LIVE, lambda: live)
        return _LIVE, registry


class _LiveBackend:
    """Hands out one sandbox that somebody else has started and will stop."""

    options: Sequence[BackendOption] = ()

    def __init__(self, name: str, sandbox: Sandbox) -> None:
        self.name = name
        self._sandbox = sandbox

    @property
    def capabilities(self) -> Capabilities:
        """What the sandbox can do."""
        return self._sandbox.capabilities

    def configure(self, values: Mapping[str, str]) -> None:
        """Take no values: it has no options."""

    async def preflight(self) -> None:
        """It runs already."""

    def create(self, spec: SandboxSpec) -> Sandbox:
        """Return the sandbox, whatever is asked for."""
        return cast("Sandbox", _LiveSandbox(self._sandbox, spec))

    def leftovers(self, *, unused_for_sec: float | None = None) -> Sequence[Leftovers]:
        """Return nothing: it belongs to somebody else."""
        return ()

    async def aclose(self) -> None:
        """It belongs to somebody else."""


class _LiveSandbox:
    """A sandbox that is neither started nor stopped by the rollout in it."""

    def __init__(self, inner: Sandbox, spec: SandboxSpec) -> None:
        self._inner = inner
        self._spec = spec

    async def start(self) -> None:
        """Bring in what a new sandbox would mount."""
        for mount in self._spec.mounts:
            await self._inner.upload_dir(mount.source, mount.target)

    async def stop(self, *, delete: bool = True) -> None:
        """Leave it to its owner."""

    async def stop_main(self) -> None:
        """Leave it to its owner."""

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)
