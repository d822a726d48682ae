"""What the daemon stores for a run: volumes that hold host directories, and snapshots of containers as images."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import secrets
import tarfile
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import archive
from pytest_benchflow.sandboxes.base import Mount, SandboxImage, SandboxSpec
from pytest_benchflow.sandboxes.docker.client import DockerEngine, EngineError
from pytest_benchflow.sandboxes.docker.container import Container, remove
from pytest_benchflow.sandboxes.docker.container_spec import (
    ImageFacts,
    container_name,
    locked,
    make_labels,
    volume_name,
)
from pytest_benchflow.sandboxes.docker.transfer import stream_archive

if TYPE_CHECKING:
    import docker


#: Its value is the name of the directory that the volume holds, for people.
VOLUME_LABEL = "benchflow.bundle"
_PLACE = "/bundle"
#: Written last: a volume without it was never finished.
_MARKER = ".benchflow-complete"


class Volumes:
    """Knows which volumes of one engine are complete."""

    def __init__(self, engine: DockerEngine, run: str) -> None:
        self._engine = engine
        self._run = run
        self._locks: dict[str, asyncio.Lock] = {}
        self._complete: dict[str, str] = {}
        """When each complete volume was made: one of the same name may have taken its place."""

    async def provide(self, spec: SandboxSpec, image: ImageFacts) -> None:
        """Fill the volumes of a sandbox that are not there or not complete."""
        for mount in spec.mounts:
            async with self._locks.setdefault(mount.key, asyncio.Lock()):
                name = volume_name(mount)
                made = await self._created_at(name)
                if made is None or self._complete.get(mount.key) != made:
                    async with locked(name):
                        await self._ensure(mount, image)
                    self._complete[mount.key] = await self._created_at(name) or ""

    async def _created_at(self, name: str) -> str | None:
        try:
            facts = await self._engine.call(lambda client: client.inspect_volume(name))
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return str(facts.get("CreatedAt"))

    async def _ensure(self, mount: Mount, image: ImageFacts) -> None:
        """Look into the volume through a container that never starts, and fill it if its marker is missing."""
        volume, name = volume_name(mount), container_name(f"fill-{mount.key}")
        labels = {VOLUME_LABEL: mount.source.name}
        await self._engine.call(lambda client: client.create_volume(volume, labels=labels))
        config = {
            "Image": image.reference,
            "Entrypoint": ["true"],
            "Cmd": [],
            "Labels": make_labels(self._run, f"filling {volume}"),
            "HostConfig": {
                "NetworkMode": "none",
                "Mounts": [{"Type": "volume", "Source": volume, "Target": _PLACE, "VolumeOptions": {"NoCopy": True}}],
            },
        }
        try:
            await self._engine.finish(lambda client: client.create_container_from_config(config, name))  # type: ignore[no-untyped-call]
            if not await self._engine.call(lambda client: _is_complete(client, name)):
                await self._fill(mount, name)
        finally:
            await asyncio.shield(remove(self._engine, name))

    async def _fill(self, mount: Mount, container: str) -> None:
        cancelled = threading.Event()
        filling = asyncio.ensure_future(self._engine.call(lambda client: _fill(client, container, mount, cancelled)))
        try:
            await asyncio.shield(filling)
        except asyncio.CancelledError:
            # The lock is held until nothing is written any more.
            cancelled.set()
            await asyncio.wait([filling])
            raise
        except EngineError as error:
            raise SandboxError(f"{mount.source} cannot be copied into a Docker volume: {error.reason}") from None


def _is_complete(client: docker.APIClient, container: str) -> bool:
    from docker.errors import NotFound

    try:
        stream, _ = client.get_archive(container, f"{_PLACE}/{_MARKER}")
    except NotFound:
        return False
    for _ in stream:
        pass
    return True


def _fill(client: docker.APIClient, container: str, mount: Mount, cancelled: threading.Event) -> None:
    """Send the directory, and when the daemon has all of it, the marker."""

    def content() -> Iterator[bytes]:
        with contextlib.closing(
            stream_archive(lambda stream: archive.pack_dir(mount.source, stream, hard_links=True))
        ) as chunks:
            for chunk in chunks:
                if cancelled.is_set():
                    raise InterruptedError("cancelled")
                yield chunk

    client.put_archive(container, _PLACE, cast(bytes, content()))
    with io.BytesIO() as packed:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.addfile(tarfile.TarInfo(_MARKER))
        client.put_archive(container, _PLACE, packed.getvalue())


PROVIDER = "docker"
_REPOSITORY = "pytest-benchflow-snapshot"


class Snapshots:
    """Makes and removes the snapshots of one backend."""

    def __init__(self, engine: DockerEngine, run: str) -> None:
        self._engine = engine
        self._run = run
        self._made: list[str] = []

    async def take(self, container: Container, spec: SandboxSpec, image: ImageFacts, name: str | None) -> SandboxImage:
        """Make an image of a container, which stands still meanwhile."""
        word = re.sub("[^a-zA-Z0-9_.-]+", "-", name or spec.name)[:48].strip("-.") or "snapshot"
        tag = f"{word}-{self._run}-{secrets.token_hex(4)}"
        reference = f"{_REPOSITORY}:{tag}"
        self._made.append(reference)
        try:
            await self._engine.finish(lambda client: client.commit(container.id, repository=_REPOSITORY, tag=tag))
        except EngineError as error:
            raise SandboxError(f"sandbox {spec.name}: no snapshot could be made: {error.reason}") from None
        return SandboxImage(PROVIDER, reference, {"user": image.user, "workdir": image.workdir})

    async def find(self, image: SandboxImage, spec: SandboxSpec) -> ImageFacts:
        """Return a snapshot as the image of a sandbox."""
        if image.provider != PROVIDER:
            raise SandboxError(
                f"sandbox {spec.name} is a container and cannot restore an image of {image.provider}", retryable=False
            )
        await self._check(image.ref)
        user, workdir = (image.meta.get(key, "") for key in ("user", "workdir"))
        return ImageFacts(image.ref, user=user, workdir=workdir, is_snapshot=True)

    async def aclose(self) -> None:
        """Remove what this backend made; what is still in use is found by its labels later."""
        for reference in self._made:
            with contextlib.suppress(SandboxError):
                await self._engine.call(lambda client, name=reference: client.remove_image(name))  # type: ignore[misc]
        self._made.clear()

    async def _check(self, reference: str) -> None:
        try:
            await self._engine.call(lambda client: client.inspect_image(reference))  # type: ignore[no-untyped-call]
        except EngineError as error:
            if error.status == 404:
                raise SandboxError(f"image {reference} is gone", retryable=False) from None
            raise
