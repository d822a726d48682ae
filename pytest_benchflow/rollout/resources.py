"""What rollouts of one run share: the registries and one started backend per kind of sandbox."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.rollout.judge_limit import JudgeLimit
from pytest_benchflow.rollout.setup import make_context
from pytest_benchflow.sandboxes import CONTEXT_PREFIX, SandboxRegistry
from pytest_benchflow.tasks import stamp_tree

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.sandboxes import Backend
    from pytest_benchflow.services import ServiceRegistry
    from pytest_benchflow.tasks import Task

_KEPT_VERSIONS = 64
_MAX_JUDGE_CALLS = 8


class TaskVersion(NamedTuple):
    """What the files of a task are, and what tells that they are still the same."""

    digest: str
    stamp: str | None
    """None if that cannot be told."""


class Resources:
    """Belongs to one event loop; close it when the last rollout has ended."""

    def __init__(
        self,
        agents: AgentRegistry,
        sandboxes: SandboxRegistry,
        services: ServiceRegistry | None = None,
        *,
        needs_prices: bool = False,
    ) -> None:
        self.agents = agents
        self.sandboxes = sandboxes
        self._services = services
        self._backends: dict[str, asyncio.Task[Backend]] = {}
        self._versions: dict[Path, tuple[Task, TaskVersion]] = {}
        self._contexts: dict[tuple[Path, str | None, Path | None], asyncio.Task[Path]] = {}
        self.judge_limit = JudgeLimit(_MAX_JUDGE_CALLS)
        """How many questions all judges together may have open."""
        self.needs_prices = needs_prices
        """Whether a budget counts what judges cost."""
        self._once: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @cached_property
    def services(self) -> ServiceRegistry:
        """The services that configurations can name."""
        from pytest_benchflow.services import ServiceRegistry

        return ServiceRegistry() if self._services is None else self._services

    @classmethod
    def with_defaults(cls, agents: AgentRegistry | None = None, sandboxes: SandboxRegistry | None = None) -> Resources:
        """Return resources with these registries, or with new ones that have everything installed on this machine."""
        if agents is None:
            agents = AgentRegistry()
            agents.load_entry_points()
        return cls(agents, sandboxes or SandboxRegistry())

    async def backend(self, name: str) -> Backend:
        """Return the backend called `name`, checked once; all rollouts get the same one, or the same error."""
        resolved, _ = self.sandboxes.resolve(name)
        if resolved not in self._backends:
            self._backends[resolved] = asyncio.ensure_future(self._open(resolved))
        return await asyncio.shield(self._backends[resolved])

    async def version(self, task: Task) -> TaskVersion:
        """Return the version of a task, read from disk once for all rollouts that share the task's object."""
        known = self._versions.get(task.path)
        if known is None or known[0] is not task:
            if len(self._versions) >= _KEPT_VERSIONS:
                self._versions.clear()
            self._versions[task.path] = known = task, await asyncio.to_thread(_version, task)
        return known[1]

    async def once(self, key: tuple[str, ...], make: Callable[[], Coroutine[object, object, None]]) -> None:
        """Await what `make` returns, once for all that give the same key; all get the same error."""
        if key not in self._once:
            self._once[key] = asyncio.ensure_future(make())
        await asyncio.shield(self._once[key])

    async def build_context(self, task: Task, config: RolloutConfig) -> Path | None:
        """Return the build context of a task: its own, or the copy that the configuration asks for."""
        directory, base, root = task.environment_dir, config.base_image_override, config.context_root
        if directory is None or (base is None and root is None) or not (directory / "Dockerfile").is_file():
            return directory
        key = (directory, base, root)
        if key not in self._contexts:
            if self._scratch is None:
                self._scratch = tempfile.TemporaryDirectory(prefix=f"{CONTEXT_PREFIX}{os.getpid()}-")
            target = Path(self._scratch.name) / str(len(self._contexts)) / directory.name
            self._contexts[key] = asyncio.ensure_future(_make_context(directory, target, base, root))
        return await asyncio.shield(self._contexts[key])

    async def aclose(self) -> None:
        """Close every backend and remove the build contexts."""
        for making in self._once.values():
            making.cancel()
        await asyncio.gather(*self._once.values(), return_exceptions=True)
        self._once.clear()
        for opening in self._backends.values():
            if not opening.done():
                opening.cancel()
            elif not opening.cancelled() and opening.exception() is None:
                await opening.result().aclose()
        self._backends.clear()
        await asyncio.gather(*self._contexts.values(), return_exceptions=True)
        self._contexts.clear()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    async def _open(self, name: str) -> Backend:
        backend = self.sandboxes.create(name)
        await backend.preflight()
        return backend


def _version(task: Task) -> TaskVersion:
    stamp = stamp_tree(str(task.path), task.file.name, settled=True)  # first, so that it is never newer than the digest
    return TaskVersion(task.digest(), stamp)


async def _make_context(directory: Path, target: Path, base: str | None, root: Path | None) -> Path:
    await asyncio.to_thread(make_context, directory, target, base_image=base, root=root)
    return target
