"""What differs between a container and its image, and the image's own files put back, by the engine alone.

No program of the container takes part, for an agent that was root may have replaced any of them.
"""

from __future__ import annotations

import io
import secrets
import tarfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.base import FileChange
from pytest_benchflow.sandboxes.docker.client import EngineError

if TYPE_CHECKING:
    import docker

    from pytest_benchflow.sandboxes.docker.container import Container

_KINDS: dict[int, Literal["added", "changed", "deleted"]] = {0: "changed", 1: "added", 2: "deleted"}
_MAX_FILE_BYTES = 256 << 20


async def changes(container: Container) -> list[FileChange]:
    """Return what the engine sees in the container's own layer; directories that only hold changes are left out."""
    rows = await container.engine.call(lambda client: client.diff(container.id)) or []
    parents = {path for row in rows for path in _parents(row["Path"])}
    return [
        FileChange(row["Path"], _KINDS[row["Kind"]]) for row in rows if row["Kind"] != 0 or row["Path"] not in parents
    ]


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts))]


async def restore_files(container: Container, image: str, paths: Collection[str]) -> None:
    """Write the image's own files over those of the container; what the image does not have becomes empty."""
    if not paths:
        return
    name = f"bf-image-{secrets.token_hex(6)}"
    try:
        await container.engine.call(lambda client: _restore(client, container.id, image, name, sorted(paths)))
    except EngineError as error:
        raise SandboxError(f"{container.title}: files of its image cannot be put back: {error.reason}") from None


def _restore(client: docker.APIClient, container_id: str, image: str, name: str, paths: Sequence[str]) -> None:
    """Read each file from a container of the image that never runs."""
    config = {
        "Image": image,
        "Entrypoint": ["none"],
        "Labels": client.inspect_container(container_id)["Config"]["Labels"],
    }
    client.create_container_from_config(config, name)  # type: ignore[no-untyped-call]
    try:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as out:
            for path in paths:
                _copy(client, name, path, out)
        client.put_archive(container_id, "/", buffer.getvalue())
    finally:
        with suppress(Exception):
            client.remove_container(name, force=True, v=True)


def _copy(client: docker.APIClient, image: str, path: str, out: tarfile.TarFile) -> None:
    from docker.errors import NotFound

    try:
        stream, _ = client.get_archive(image, path)
        data = b"".join(stream)
    except NotFound:
        empty = tarfile.TarInfo(path.lstrip("/"))
        empty.mode = 0o644
        out.addfile(empty, io.BytesIO())
        return
    top = path.strip("/")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            # Its names begin with the last part of the path.
            _, slash, rest = member.name.strip("/").partition("/")
            member.name = f"{top}/{rest}" if slash else top
            if member.islnk():
                member.linkname = f"{top}/{member.linkname.partition('/')[2]}"
            out.addfile(member, archive.extractfile(member) if member.isreg() else None)
