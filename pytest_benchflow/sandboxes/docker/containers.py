"""Start and end the containers of one backend."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.sandboxes.base import SandboxSpec
from pytest_benchflow.sandboxes.docker.client import DockerEngine, EngineError
from pytest_benchflow.sandboxes.docker.container import Container, launch, remove
from pytest_benchflow.sandboxes.docker.container_spec import (
    KEPT_PREFIX,
    EngineFacts,
    ImageFacts,
    container_config,
    make_labels,
    notes_for,
)
from pytest_benchflow.sandboxes.docker.exec import Command
from pytest_benchflow.sandboxes.docker.images import Images
from pytest_benchflow.sandboxes.docker.networks import ContainerNetwork, Networks, require_guard
from pytest_benchflow.sandboxes.docker.sidecar import DockerService
from pytest_benchflow.sandboxes.docker.storage import Snapshots, Volumes
from pytest_benchflow.sandboxes.helpers import OWN_ENV

#: PID 1 ends after so much silence of the runner: over a network its death may go unnoticed. An engine of this machine
#: tells of it, and needs none: bash that waits with a limit collects no dead orphans meanwhile.
REMOTE_LEASE_SEC = 300
LOCAL_LEASE_SEC = 0
_END_TIMEOUT_SEC = 30.0


@dataclass(frozen=True, slots=True)
class KeptSandbox:
    """A container that lives on without the runner."""

    name: str
    removal: str
    """The command that removes it with all that belongs to it."""


class SandboxStarter(Protocol):
    """What a sandbox asks of whoever starts its container."""

    async def image(self, spec: SandboxSpec, container_name: str) -> ImageFacts:
        """Return the image of a sandbox, built or pulled if it is not there."""

    async def start(self, spec: SandboxSpec, image: ImageFacts, container_name: str) -> Container:
        """Start the container of a sandbox."""

    async def finish_start(self, container_name: str) -> None:
        """Start what has to wait until the programs of that container run."""

    async def stop(self, container_name: str, container: Container | None) -> None:
        """Remove what was started, as far as it was; idempotent."""

    async def keep(self, container: Container) -> KeptSandbox:
        """Let the container live on without the runner, and return how to reach and remove it."""

    def notes(self, spec: SandboxSpec) -> list[str]:
        """Return what the user should know about this sandbox."""

    def network(self, spec: SandboxSpec, container_name: str) -> ContainerNetwork | None:
        """Return what the container can reach; None if that can never change."""

    def service(self, container_name: str, service: str) -> DockerService:
        """Return another container beside the one of a sandbox."""

    async def stop_main(self, container_name: str) -> None:
        """End the container of a sandbox, and nothing beside it."""

    @property
    def snapshots(self) -> Snapshots | None:
        """Who makes images of the container; None where one is not all there is, or cannot be made to stand still."""


class Starter:
    """Knows the engine, its images and this run's labels."""

    def __init__(
        self, engine: DockerEngine, images: Images, facts: EngineFacts, *, run: str, networks: Networks
    ) -> None:
        self.engine = engine
        self.images = images
        self.facts = facts
        self.run = run
        self.networks = networks
        self.volumes = Volumes(engine, run)
        # A container stands still while it is kept, and it takes a control group to make it.
        self.snapshots = Snapshots(engine, run) if facts.has_limits else None

    @property
    def lease_sec(self) -> int:
        """After how much silence of the runner its containers end."""
        return LOCAL_LEASE_SEC if self.engine.address.is_local else REMOTE_LEASE_SEC

    async def image(self, spec: SandboxSpec, container_name: str) -> ImageFacts:
        """Return the image of a sandbox, built or pulled if it is not there."""
        return await self.images.find(spec)

    async def start(self, spec: SandboxSpec, image: ImageFacts, container_name: str) -> Container:
        """Start the container of a sandbox."""
        try:
            return await self._start(spec, image, container_name)
        except EngineError as error:
            if error.status != 404 or "image" not in error.reason.lower() or image.is_snapshot:
                raise
        self.images.forget(image)
        return await self._start(spec, await self.images.find(spec), container_name)

    async def _start(self, spec: SandboxSpec, image: ImageFacts, container_name: str) -> Container:
        await self.volumes.provide(spec, image)
        require_guard(self.networks, spec.network, spec.name)
        if spec.network.is_restricted:
            await self.networks.gateway()
        config = container_config(
            spec,
            image,
            self.facts,
            labels=make_labels(self.run, spec.name),
            network=self.networks.name_for(spec.network),
            lease_sec=self.lease_sec,
        )
        return await launch(
            self.engine, config, container_name=container_name, name=spec.name, lease_sec=self.lease_sec
        )

    async def stop(self, container_name: str, container: Container | None) -> None:
        """Remove a container, started or not; idempotent."""
        try:
            await remove(self.engine, container_name)
        finally:
            if container is not None:
                container.close()
                # The loop closes sockets on its next turn, and may not have one afterwards.
                await asyncio.sleep(0)

    async def keep(self, container: Container) -> KeptSandbox:
        """End every process but PID 1 and let the container live on."""
        name = KEPT_PREFIX + container.id.removeprefix("bf-")
        await end_programs(container)
        await self.engine.call(lambda client: client.rename(container.id, name))
        await container.channel.keep()
        container.close()
        return KeptSandbox(name, f"docker rm -f {name}")

    async def finish_start(self, container_name: str) -> None:
        """Do nothing: there is one container and no other."""

    def network(self, spec: SandboxSpec, container_name: str) -> ContainerNetwork:
        """Return what the container can reach."""
        return ContainerNetwork(self.networks, container_name, spec.network)

    def notes(self, spec: SandboxSpec) -> list[str]:
        """Return what the user should know about this sandbox."""
        return notes_for(spec, self.facts)

    def service(self, container_name: str, service: str) -> DockerService:
        """Refuse it: there is one container and no other."""
        raise _no_services_error(container_name)

    async def stop_main(self, container_name: str) -> None:
        """Refuse it: nothing would be left."""
        raise _no_services_error(container_name)


def _no_services_error(container_name: str) -> UsageError:
    return UsageError(f"{container_name} is one container without services", advice="they come from a compose file")


async def end_programs(container: Container) -> None:
    """End every process of a container but PID 1."""
    await container.run(Command("kill -9 -1", env=OWN_ENV), timeout_sec=_END_TIMEOUT_SEC)
