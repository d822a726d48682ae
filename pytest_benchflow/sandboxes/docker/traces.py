"""What `bf cleanup` sees of a Docker daemon."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pytest_benchflow.sandboxes.leftovers import Trace

from .address import find_address
from .engine import Engine
from .images import IMAGE_LABEL, REPOSITORY, short_name
from .leftovers import Leftover, list_leftovers, remove_these
from .volumes import VOLUME_LABEL

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
        return await self._engine.call(lambda client: [item for item in traces if _remove(client, item)])


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


def _remove(client: docker.APIClient, item: Trace) -> bool:
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
