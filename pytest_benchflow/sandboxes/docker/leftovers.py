"""Find and remove what runs that are gone have left in a daemon."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_benchflow.errors import SandboxError

from .address import Address, find_address
from .engine import Engine
from .labels import CREATED, KEPT, ROLLOUT, RUN, is_orphan

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True, slots=True)
class Leftover:
    """An object in the daemon that belongs to a rollout."""

    kind: str
    """`container`, `network` or `volume`."""
    id: str
    name: str
    run: str
    rollout: str
    created: int
    orphan: bool
    """Whether the process that made it is gone."""
    kept: bool = False
    """Whether it was left on purpose."""


async def list_leftovers(engine: Engine | None = None, *, everything: bool = False) -> list[Leftover]:
    """List what dead runs have left; with `everything` also what is in use or was kept."""
    async with _engine(engine) as used:
        found = await used.call(_list)
    return [item for item in found if everything or (item.orphan and not item.kept)]


async def remove_leftovers(engine: Engine | None = None, *, everything: bool = False) -> list[Leftover]:
    """Remove what `list_leftovers` lists, containers first, and return what is gone."""
    async with _engine(engine) as used:
        found = await list_leftovers(used, everything=everything)
        return [item for item in found if await used.call(lambda client, item=item: _remove(client, item))]  # type: ignore[misc]
