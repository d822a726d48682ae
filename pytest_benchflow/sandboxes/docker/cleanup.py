"""Find and remove what runs that are gone have left in a Docker daemon."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from pytest_benchflow.sandboxes.cleanup import Trace
from pytest_benchflow.sandboxes.docker.client import Engine, find_address
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
    def __init__(self) -> None:
        self._opened: Engine | None = None

    @property
    def _engine(self) -> Engine:
        assert self._opened is not None, "use `async with`"
        return self._opened

    async def __aenter__(self) -> Self:
        self._opened = Engine(find_address())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.close()


class DockerLeftovers(_InDaemon):
    """Containers, networks and volumes of rollouts."""

    title = "docker"

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, Leftover] = {}

    async def find(self) -> list[Trace]:
        """List everything that carries our labels."""
        self._found = {item.id: item for item in await list_leftovers(self._engine, everything=True)}
        return [_trace(item) for item in self._found.values()]

    async def remove(self, traces: Sequence[Trace]) -> list[Trace]:
        """Remove objects, containers first."""
        gone = await remove_these(self._engine, [self._found[trace.id] for trace in traces])
        ids = {item.id for item in gone}
        return [trace for trace in traces if trace.id in ids]


class DockerImages(_InDaemon):
    """Images that tasks were built into, and volumes that hold agents; the next run that needs one brings it back."""

    title = "docker images"

    def __init__(self, max_age_sec: float) -> None:
        super().__init__()
        self._max_age_sec = max_age_sec

    async def find(self) -> list[Trace]:
        """List those of our images whose last build is long ago, and volumes that were filled long ago."""
        oldest = time.time() - self._max_age_sec
        return await self._engine.call(lambda client: [*_images(client, oldest), *_volumes(client, oldest)])

    async def remove(self, traces: Sequence[Trace]) -> list[Trace]:
        """Remove them; one that a container uses stays."""
        return await self._engine.call(lambda client: [item for item in traces if _remove_trace(client, item)])


def _trace(item: Leftover) -> Trace:
    state = "kept on purpose" if item.kept else "which is gone" if item.orphan else "which is running or elsewhere"
    return Trace(
        kind=item.kind,
        id=item.id,
        name=item.name,
        owner=f"of {item.rollout or 'no rollout'} in run {item.run} of process {item.pid or '?'}, {state}",
        created=item.created,
        abandoned=item.orphan and not item.kept,
        run=item.run,
    )


def _images(client: docker.APIClient, oldest: float) -> list[Trace]:
    found = {image["Id"]: image for image in client.images(name=REPOSITORY)}
    found |= {image["Id"]: image for image in client.images(filters={"label": IMAGE_LABEL})}
    traces = []
    for image_id, image in found.items():
        built = _last_tagged(client, image_id) or float(image["Created"])
        ours = [tag for tag in image["RepoTags"] or () if short_name(tag).startswith(f"{REPOSITORY}:")]
        # One that others have named too is theirs; one without any name was replaced by a newer build.
        named = [tag for tag in image["RepoTags"] or () if tag != "<none>:<none>"]
        size = f"{image['Size'] / 1e6:.0f} MB"
        if built <= oldest:
            names = ours or ([] if named else [image_id])
            traces += [Trace("image", name, short_name(name), size, built, True) for name in names]
    return sorted(traces, key=lambda trace: trace.created)


def _last_tagged(client: docker.APIClient, image_id: str) -> float | None:
    """Return when an image was last built: a build that finds all its layers gives it its name anew."""
    facts = client.inspect_image(image_id)  # type: ignore[no-untyped-call]
    return _seconds((facts.get("Metadata") or {}).get("LastTagTime"))


def _volumes(client: docker.APIClient, oldest: float) -> list[Trace]:
    traces = []
    for volume in client.volumes(filters={"label": VOLUME_LABEL})["Volumes"] or []:
        filled = _seconds(volume.get("CreatedAt")) or 0.0
        if filled <= oldest:
            owner = f"with {volume['Labels'][VOLUME_LABEL]}"
            traces.append(Trace("volume", volume["Name"], volume["Name"], owner, filled, True))
    return sorted(traces, key=lambda trace: trace.created)


def _seconds(text: object) -> float | None:
    """Return the moment of a time as engines write it, in seconds since 1970."""
    try:
        moment = datetime.fromisoformat(str(text)[:19] + "+00:00").timestamp()
    except ValueError:
        return None
    return moment if moment > 0 else None


def _remove_trace(client: docker.APIClient, item: Trace) -> bool:
    from docker.errors import APIError, NotFound

    try:
        if item.kind == "volume":
            client.remove_volume(item.id)
        else:
            client.remove_image(item.id)
    except NotFound:
        return True
    except APIError:
        return False
    return True


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
