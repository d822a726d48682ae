"""`bf cleanup`: what runs have left, whose it is, and its end."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_benchflow.core.errors import BenchflowError
from pytest_benchflow.sandboxes import Leftover, Leftovers, SandboxRegistry


def clean_up(
    *, remove: bool, everything: bool, run: str | None, max_age_days: float | None, as_json: bool = False
) -> int:
    """List or remove what was left, in every backend; one that cannot be reached is reported and passed over."""
    unused_for_sec = max_age_days * 86400 if max_age_days is not None else None
    places = [place for place in _places(unused_for_sec) if run is None or place.has_runs]
    places.sort(key=lambda place: place.is_cache)
    treated = [asyncio.run(_treat(place, remove=remove, everything=everything, run=run)) for place in places]
    if as_json:
        print(json.dumps([row for each in treated if each is not None for row in each.rows()], indent=2))
        return 0
    for each in treated:
        if each is not None:
            each.show()
    if any(each is not None and each.selection for each in treated) and not remove:
        print("nothing was removed; --yes removes what is listed")
    return 0


def _places(unused_for_sec: float | None) -> Iterator[Leftovers]:
    registry = SandboxRegistry()
    for name in registry.names():
        try:
            yield from registry.create(name).leftovers(unused_for_sec=unused_for_sec)
        except (BenchflowError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class _Treated:
    """What was found in one place, and what of it was removed; None if nothing was to be."""

    title: str
    selection: Sequence[Leftover]
    removed: Sequence[Leftover] | None
    n_spared: int

    def show(self) -> None:
        """Print it."""
        print(f"{self.title}: {len(self.selection) or 'nothing'}")
        for item in self.selection:
            ending = "  removed" if self._is_removed(item) else "  could not be removed, it is in use"
            print(
                f"  {item.kind} {item.name}  {item.owner}{_age(item.created)}{'' if self.removed is None else ending}"
            )
        if self.n_spared:
            print(f"  {self.n_spared} kept on purpose or in use; --all includes them")

    def rows(self) -> Iterator[dict[str, object]]:
        """Yield it as plain data."""
        for item in self.selection:
            facts = {
                "place": self.title,
                "kind": item.kind,
                "name": item.name,
                "run": item.run,
                "created": item.created,
            }
            yield {**facts, "removed": self._is_removed(item)}

    def _is_removed(self, item: Leftover) -> bool:
        return self.removed is not None and item in self.removed


async def _treat(place: Leftovers, *, remove: bool, everything: bool, run: str | None) -> _Treated | None:
    try:
        async with place as opened:
            leftovers = [item for item in await opened.find() if run in (None, item.run)]
            selection = [item for item in leftovers if everything or item.abandoned]
            removed = await opened.remove(selection) if remove else None
    except (BenchflowError, OSError) as error:
        print(f"{place.title}: {error}", file=sys.stderr)
        return None
    return _Treated(place.title, selection, removed, len(leftovers) - len(selection))


def _age(created: float) -> str:
    seconds = max(0.0, time.time() - created) if created else 0.0
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= 2 * length:
            return f", {seconds / length:.0f} {unit} old"
    return ""
