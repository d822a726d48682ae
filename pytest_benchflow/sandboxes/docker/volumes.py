"""Volumes that hold host directories: filled once per daemon through its interface, so the daemon may be anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import io
import tarfile
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes import archive
from pytest_benchflow.sandboxes.base import Mount, SandboxSpec

from .engine import Engine, EngineError
from .labels import make_labels
from .launch import remove
from .locks import locked
from .plan import ImageFacts, container_name, volume_name
from .transfer import streamed

if TYPE_CHECKING:
    import docker

#: Its value is the name of the directory that the volume holds, for people.
VOLUME_LABEL = "benchflow.bundle"
_PLACE = "/bundle"
#: Written last: a volume without it was never finished.
_MARKER = ".benchflow-complete"


class Volumes:
    """Knows which volumes of one engine are complete."""

    def __init__(self, engine: Engine, run: str) -> None:
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
                made = await self._made(name)
                if made is None or self._complete.get(mount.key) != made:
                    async with locked(name):
                        await self._ensure(mount, image)
                    self._complete[mount.key] = await self._made(name) or ""

    async def _made(self, name: str) -> str | None:
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
                "Mounts": [
                    {"Type": "volume", "Source": volume, "Target": _PLACE, "VolumeOptions": {"NoCopy": True}},
                ],
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
            streamed(lambda stream: archive.pack_dir(mount.source, stream, hard_links=True))
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
