"""What rollouts of one run share: the registries and one started backend per kind of sandbox."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pytest_benchflow.agents import AgentRegistry

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Backend, SandboxRegistry
    from pytest_benchflow.tasks import Task


class Resources:
    """Belongs to one event loop; close it when the last rollout has ended."""

    def __init__(self, agents: AgentRegistry, sandboxes: SandboxRegistry) -> None:
        self.agents = agents
        self.sandboxes = sandboxes
        self._backends: dict[str, asyncio.Task[Backend]] = {}
        self._digests: dict[str, str] = {}

    async def backend(self, name: str) -> Backend:
        """Return the backend called `name`, checked once; all rollouts that ask get the same answer."""
        resolved, _ = self.sandboxes.resolve(name)
        if resolved not in self._backends:
            self._backends[resolved] = asyncio.ensure_future(self._open(resolved))
        return await asyncio.shield(self._backends[resolved])

    async def digest(self, task: Task) -> str:
        """Return the content digest of a task, read from disk once per run."""
        key = str(task.path)
        if key not in self._digests:
            self._digests[key] = await asyncio.to_thread(task.digest)
        return self._digests[key]

    async def aclose(self) -> None:
        """End every backend."""
        for opening in self._backends.values():
            if not opening.done():
                opening.cancel()
            elif not opening.cancelled() and opening.exception() is None:
                await opening.result().aclose()
        self._backends.clear()

    async def _open(self, name: str) -> Backend:
        backend = self.sandboxes.create(name)
        await backend.preflight()
        return backend
