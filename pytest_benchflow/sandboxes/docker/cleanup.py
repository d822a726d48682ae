"""Find and remove what runs that are gone have left in a Docker daemon."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pytest_benchflow.sandboxes.base import Leftover
from pytest_benchflow.sandboxes.docker.client import Address, DockerEngine, find_address
from pytest_benchflow.sandboxes.docker.container_spec import (
    CREATED,
    KEPT_PREFIX,
    OWNER_PID,
    PROJECT,
    ROLLOUT,
    RUN,
    is_orphan,
)
from pytest_benchflow.sandboxes.docker.images import IMAGE_LABEL, REPOSITORY, short_name
from pytest_benchflow.sandboxes.docker.storage import VOLUME_LABEL

if TYPE_CHECKING:
    import docker


class _InDaemon:
    def __init__(self, address: Address | None = None) -> None:
        self._address = address
        self._opened: DockerEngine | None = None

    @property
    def _engine(self) -> DockerEngine:
        assert self._opened is not None, "use `async with`"
        return self._opened

    async def __aenter__(self) -> Self:
        self._opened = DockerEngine(self._address or find_address())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.close()


class DockerLeftovers(_InDaemon):
    """Containers, networks and volumes of rollouts, and their snapshots."""

    title = "docker"
    is_cache = False
    has_runs = True

    async def find(self) -> list[Leftover]:
        """List everything that carries our labels."""
        return await list_leftovers(self._engine, everything=True)

    async def remove(self, leftovers: Sequence[Leftover]) -> list[Leftover]:
        """Remove objects in the order that they were found in: containers first."""
        return await self._engine.call(lambda client: [item for item in leftovers if _remove(client, item)])


class DockerImages(_InDaemon):
    """Images that tasks were built into, and volumes that hold agents; the next run that needs one brings it back."""

    title = "docker images"
    is_cache = True
    has_runs = False

    def __init__(self, unused_for_sec: float, address: Address | None = None) -> None:
        super().__init__(address)
        self._unused_for_sec = unused_for_sec

    async def find(self) -> list[Leftover]:
        """List those of our images whose last build is long ago, and volumes that were filled long ago."""
        oldest = time.time() - self._unused_for_sec
        return await self._engine.call(lambda client: [*_images(client, oldest), *_volumes(client, oldest)])

    async def remove(self, leftovers: Sequence[Leftover]) -> list[Leftover]:
        """Remove them; one that a container uses stays."""
        # Podman would remove that container too if it were forced.
        return await self._engine.call(
            lambda client: [item for item in leftovers if _remove(client, item, force=False)]
        )


async def list_leftovers(engine: DockerEngine | None = None, *, everything: bool = False) -> list[Leftover]:
    """List what dead runs have left; with `everything` also what is in use or was kept."""
    async with _opened(engine) as used:
        leftovers = await used.call(lambda client: list(_objects(client)))
    return [item for item in leftovers if everything or item.abandoned]


async def remove_leftovers(engine: DockerEngine | None = None, *, everything: bool = False) -> list[Leftover]:
    """Remove what `list_leftovers` lists, containers first, and return what is gone."""
    async with _opened(engine) as used:
        leftovers = await list_leftovers(used, everything=everything)
        return await used.call(lambda client: [item for item in leftovers if _remove(client, item)])


@contextlib.asynccontextmanager
async def _opened(engine: DockerEngine | None) -> AsyncIterator[DockerEngine]:
    if engine is not None:
        yield engine
        return
    own = DockerEngine(find_address())
    try:
        yield own
    finally:
        own.close()


def _objects(client: docker.APIClient) -> Iterator[Leftover]:
    kept_projects = set()
    for container in client.containers(all=True, filters={"label": RUN}):
        # An engine that crashed may list what it has removed until it starts again: without a name, and out of reach.
        if container["Names"]:
            name = container["Names"][0].lstrip("/")
            if is_kept := name.startswith(KEPT_PREFIX):
                kept_projects.add(container["Labels"].get(PROJECT))
            yield _leftover("container", container["Id"], name, container["Labels"], is_kept=is_kept)
    kept_projects.discard(None)
    for network in client.networks(filters={"label": RUN}):
        is_kept = network["Labels"].get(PROJECT) in kept_projects
        yield _leftover("network", network["Id"], network["Name"], network["Labels"], is_kept=is_kept)
    for volume in client.volumes(filters={"label": RUN})["Volumes"] or []:
        is_kept = volume["Labels"].get(PROJECT) in kept_projects
        yield _leftover("volume", volume["Name"], volume["Name"], volume["Labels"], is_kept=is_kept)
    for image in client.images(filters={"label": RUN}):
        name = short_name(next(iter(image["RepoTags"] or ()), image["Id"]))
        yield _leftover("image", name, name, image["Labels"])


def _leftover(kind: str, object_id: str, name: str, labels: dict[str, str], *, is_kept: bool = False) -> Leftover:
    is_abandoned = is_orphan(labels)
    state = "kept on purpose" if is_kept else "which is gone" if is_abandoned else "which is running or elsewhere"
    rollout, pid = labels.get(ROLLOUT), labels.get(OWNER_PID)
    return Leftover(
        kind=kind,
        id=object_id,
        name=name,
        owner=f"of {rollout or 'no rollout'} in run {labels[RUN]} of process {pid or '?'}, {state}",
        created=float(labels.get(CREATED, 0)),
        abandoned=is_abandoned and not is_kept,
        run=labels[RUN],
        rollout=rollout,
    )


def _images(client: docker.APIClient, oldest: float) -> list[Leftover]:
    images = {image["Id"]: image for image in client.images(name=REPOSITORY)}
    images |= {image["Id"]: image for image in client.images(filters={"label": IMAGE_LABEL})}
    leftovers = []
    for image_id, image in images.items():
        built = _last_tagged(client, image_id) or float(image["Created"])
        ours = [tag for tag in image["RepoTags"] or () if short_name(tag).startswith(f"{REPOSITORY}:")]
        # One that others have named too is theirs; one without any name was replaced by a newer build.
        named = [tag for tag in image["RepoTags"] or () if tag != "<none>:<none>"]
        size = f"{image['Size'] / 1e6:.0f} MB"
        if built <= oldest:
            names = ours or ([] if named else [image_id])
            leftovers += [Leftover("image", name, short_name(name), size, built, True) for name in names]
    return sorted(leftovers, key=lambda item: item.created)


def _last_tagged(client: docker.APIClient, image_id: str) -> float | None:
    """Return when an image was last built: a build that finds all its layers gives it its name anew."""
    facts = client.inspect_image(image_id)  # type: ignore[no-untyped-call]
    return _seconds((facts.get("Metadata") or {}).get("LastTagTime"))


def _volumes(client: docker.APIClient, oldest: float) -> list[Leftover]:
    leftovers = []
    for volume in client.volumes(filters={"label": VOLUME_LABEL})["Volumes"] or []:
        filled = _seconds(volume.get("CreatedAt")) or 0.0
        if filled <= oldest:
            owner = f"with {volume['Labels'][VOLUME_LABEL]}"
            leftovers.append(Leftover("volume", volume["Name"], volume["Name"], owner, filled, True))
    return sorted(leftovers, key=lambda item: item.created)


def _seconds(text: object) -> float | None:
    """Return the moment of a time as engines write it, in seconds since 1970."""
    try:
        moment = datetime.fromisoformat(str(text)[:19] + "+00:00").timestamp()
    except ValueError:
        return None
    return moment if moment > 0 else None


def _remove(client: docker.APIClient, item: Leftover, *, force: bool = True) -> bool:
    """Remove one object; False if it cannot be, for example because it is in use again."""
    from docker.errors import APIError, NotFound

    try:
        if item.kind == "container":
            client.remove_container(item.id, force=True, v=True)
        elif item.kind == "network":
            client.remove_network(item.id)
        elif item.kind == "image":
            client.remove_image(item.id)
        else:
            client.remove_volume(item.id, force=force)
    except NotFound:
        return True
    except APIError:
        return False
    return True
