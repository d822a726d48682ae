"""`bf cleanup`: what runs have left, whose it is, and its end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence

from pytest_benchflow.core.errors import BenchflowError
from pytest_benchflow.sandboxes import Leftover, Leftovers, SandboxRegistry


def clean_up(*, remove: bool, everything: bool, run: str | None, max_age_days: float | None) -> int:
    """List or remove what was left, in every backend; one that cannot be reached is reported and passed over."""
    unused_for_sec = max_age_days * 86400 if max_age_days is not None else None
    places = [place for place in _places(unused_for_sec) if run is None or place.has_runs]
    places.sort(key=lambda place: place.is_cache)
    count = sum(asyncio.run(_treat(place, remove=remove, everything=everything, run=run)) for place in places)
    if count and not remove:
        print("nothing was removed; --yes removes what is listed")
    return 0


def _places(unused_for_sec: float | None) -> Iterator[Leftovers]:
    registry = SandboxRegistry()
    for name in registry.names():
        try:
            yield from registry.create(name).leftovers(unused_for_sec=unused_for_sec)
        except (BenchflowError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)


async def _treat(place: Leftovers, *, remove: bool, everything: bool, run: str | None) -> int:
    try:
        async with place as opened:
            leftovers = [item for item in await opened.find() if run in (None, item.run)]
            selection = [item for item in leftovers if everything or item.abandoned]
            removed = await opened.remove(selection) if remove else None
    except (BenchflowError, OSError) as error:
        print(f"{place.title}: {error}", file=sys.stderr)
        return 0
    _show(place.title, selection, removed)
    if spared := len(leftovers) - len(selection):
        print(f"  {spared} kept on purpose or in use; --all includes them")
    return len(selection)


def _show(title: str, leftovers: Sequence[Leftover], removed: Sequence[Leftover] | None) -> None:
    print(f"{title}: {len(leftovers) or 'nothing'}")
    for item in leftovers:
        ending = "" if removed is None else "  removed" if item in removed else "  could not be removed, it is in use"
        print(f"  {item.kind} {item.name}  {item.owner}{_age(item.created)}{ending}")


def _age(created: float) -> str:
    seconds = max(0.0, time.time() - created) if created else 0.0
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= 2 * length:
            return f", {seconds / length:.0f} {unit} old"
    return ""
