"""Find and remove what runs that are gone have left in a daemon."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .address import find_address
from .engine import Engine
from .images import short_name
from .labels import CREATED, KEPT_PREFIX, OWNER_PID, PROJECT, ROLLOUT, RUN, is_orphan

if TYPE_CHECKING:
    import docker

Kind = Literal["container", "network", "volume", "image"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """An object in the daemon that belongs to a rollout."""

    kind: Kind
    id: str
    name: str
    run: str
    rollout: str
    pid: str
    """Number of the process that made it."""
    created: int
    orphan: bool
    """Whether the process that made it is gone."""
    kept: bool
    """Whether it was left on purpose."""


async def list_leftovers(engine: Engine | None = None, *, everything: bool = False) -> list[Leftover]:
    """List what dead runs have left; with `everything` also what is in use or was kept."""
    async with _opened(engine) as used:
        found = await used.call(lambda client: list(_objects(client)))
    return [item for item in found if everything or (item.orphan and not item.kept)]


async def remove_leftovers(engine: Engine | None = None, *, everything: bool = False) -> list[Leftover]:
    """Remove what `list_leftovers` lists, containers first, and return what is gone."""
    async with _opened(engine) as used:
        return await remove_these(used, await list_leftovers(used, everything=everything))


async def remove_these(engine: Engine, items: Sequence[Leftover]) -> list[Leftover]:
    """Remove objects in the order given and return what is gone."""
    return await engine.call(lambda client: [item for item in items if _remove(client, item)])


@contextlib.asynccontextmanager
async def _opened(engine: Engine | None) -> AsyncIterator[Engine]:
    if engine is not None:
        yield engine
        return
    own = Engine(find_address())
    try:
        yield own
    finally:
        own.close()


def _objects(client: docker.APIClient) -> Iterator[Leftover]:
    kept_projects = set()
    for container in client.containers(all=True, filters={"label": RUN}):
        # An engine that crashed may list what it has removed until it starts again: without a name, and out of reach.
        if container["Names"]:
            found = _leftover("container", container["Id"], container["Names"][0].lstrip("/"), container["Labels"])
            if found.kept:
                kept_projects.add(container["Labels"].get(PROJECT))
            yield found
    kept_projects.discard(None)
    for network in client.networks(filters={"label": RUN}):
        kept = network["Labels"].get(PROJECT) in kept_projects
        yield _leftover("network", network["Id"], network["Name"], network["Labels"], kept=kept)
    for volume in client.volumes(filters={"label": RUN})["Volumes"] or []:
        kept = volume["Labels"].get(PROJECT) in kept_projects
        yield _leftover("volume", volume["Name"], volume["Name"], volume["Labels"], kept=kept)
    for image in client.images(filters={"label": RUN}):
        name = short_name(next(iter(image["RepoTags"] or ()), image["Id"]))
        yield _leftover("image", image["Id"], name, image["Labels"])


def _leftover(kind: Kind, object_id: str, name: str, labels: dict[str, str], *, kept: bool = False) -> Leftover:
    return Leftover(
        kind=kind,
        id=object_id,
        name=name,
        run=labels[RUN],
        rollout=labels.get(ROLLOUT, ""),
        pid=labels.get(OWNER_PID, ""),
        created=int(labels.get(CREATED, 0)),
        orphan=is_orphan(labels),
        kept=kept or name.startswith(KEPT_PREFIX),
    )


def _remove(client: docker.APIClient, item: Leftover) -> bool:
    """Remove one object; False if it cannot be, for example because it is in use again."""
    from docker.errors import APIError, NotFound

    try:
        if item.kind == "container":
            client.remove_container(item.id, force=True, v=True)
        elif item.kind == "network":
            client.remove_network(item.id)
        elif item.kind == "image":
            client.remove_image(item.name)
        else:
            client.remove_volume(item.id, force=True)
    except NotFound:
        return True
    except APIError:
        return False
    return True
