"""Start and end compose projects, one per sandbox; its service `main` is the sandbox, the others are sidecars."""

from __future__ import annotations

import asyncio

from pytest_benchflow.sandboxes.base import SandboxSpec

from .container import Container
from .plan import ImageFacts, notes_for
from .project import Project
from .projects import Watcher
from .service import DockerService
from .starter import Kept, Starter, end_programs


class ComposeStarter:
    """Does for compose projects what `Starter` does for containers."""

    snapshots = None

    def __init__(self, starter: Starter, watcher: Watcher) -> None:
        self._starter = starter
        self._watcher = watcher
        self._projects: dict[str, Project] = {}

    async def image(self, spec: SandboxSpec, container_name: str) -> ImageFacts:
        """Read the project, build what is missing and return what main's image says about itself."""
        project = Project(container_name.lower(), spec, self._starter)
        try:
            image = await project.prepare()
        except BaseException:
            await project.release()
            raise
        self._projects[container_name] = project
        return image

    async def start(self, spec: SandboxSpec, image: ImageFacts, container_name: str) -> Container:
        """Bring the project up and return its main container."""
        project = self._projects[container_name]
        if spec.beside in self._projects:
            project.refuse_clash(self._projects[spec.beside])
        await self._starter.engine.thread(lambda: self._watcher.watch(project.name, project.directory))
        return await project.up(image)

    async def stop(self, container_name: str, container: Container | None) -> None:
        """Remove the whole project; idempotent."""
        project = self._projects.pop(container_name, None)
        if project is not None:
            await project.down()
            await self._starter.engine.thread(lambda: self._watcher.forget(project.name))
        if container is not None:
            container.close()
            # The loop closes sockets on its next turn, and may not have one afterwards.
            await asyncio.sleep(0)

    async def keep(self, container: Container) -> Kept:
        """Leave the project without the runner, and main without its processes."""
        name = next(name for name, project in self._projects.items() if project.container is container)
        project = self._projects.pop(name)
        self._watcher.forget(project.name)
        if not await project.start_main():
            await end_programs(container)
        kept = await project.rename_as_kept()
        await container.channel.keep()
        container.close()
        await project.release()
        return Kept(kept, f"docker compose -p {project.name} down --volumes")

    def notes(self, spec: SandboxSpec) -> list[str]:
        """Return what the user should know about this sandbox."""
        return notes_for(spec, self._starter.facts)

    def service(self, container_name: str, service: str) -> DockerService:
        """Return another container of the project."""
        return self._projects[container_name].service(service)

    async def stop_main(self, container_name: str) -> None:
        """End the container of main, and nothing beside it; idempotent."""
        await self._projects[container_name].stop_main()
