"""`bf cleanup`: what runs have left, whose it is, and its end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

from pytest_benchflow.core.errors import BenchflowError
from pytest_benchflow.sandboxes import (
    Leftovers,
    Trace,
    docker_images,
    docker_leftovers,
    local_layers,
    local_leftovers,
)


def clean_up(*, remove: bool, everything: bool, run: str | None, max_age_days: float | None) -> int:
    """List or remove what was left; a sandbox that cannot be asked is told of and passed over."""
    sources = [docker_leftovers(), *([] if run else [local_leftovers()])]
    if max_age_days is not None and run is None:
        sources += [docker_images(max_age_days * 86400), local_layers(max_age_days * 86400)]
    listed = sum(asyncio.run(_treat(source, remove=remove, everything=everything, run=run)) for source in sources)
    if listed and not remove:
        print("nothing was removed; --yes removes what is listed")
    return 0


async def _treat(source: Leftovers, *, remove: bool, everything: bool, run: str | None) -> int:
    try:
        async with source as opened:
            found = [trace for trace in await opened.find() if run in (None, trace.run)]
            chosen = [trace for trace in found if everything or trace.abandoned]
            gone = await opened.remove(chosen) if remove else []
    except BenchflowError as error:
        print(f"{source.title}: {error.message}", file=sys.stderr)
        return 0
    _show(source.title, chosen, gone if remove else None)
    if spared := len(found) - len(chosen):
        print(f"  {spared} kept on purpose or in use; --all includes them")
    return len(chosen)


def _show(title: str, chosen: Sequence[Trace], gone: Sequence[Trace] | None) -> None:
    print(f"{title}: {len(chosen) or 'nothing'}")
    for trace in chosen:
        ending = "" if gone is None else "  removed" if trace in gone else "  could not be removed, it is in use"
        print(f"  {trace.kind} {trace.name}  {trace.owner}{_age(trace.created)}{ending}")


def _age(created: float) -> str:
    seconds = max(0.0, time.time() - created) if created else 0.0
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= 2 * length:
            return f", {seconds / length:.0f} {unit} old"
    return ""
