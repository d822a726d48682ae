"""Work that users or several rollouts wait for, builds, installations, clones: told to whoever shows what is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Listener: TypeAlias = "Callable[[str, bool], None]"
"""Is given what is done, and whether it begins or has ended."""

_listeners: list[Listener] = []


def on_activity(listener: Listener) -> Callable[[], None]:
    """Tell a listener of everything that is done from now on; return the function that ends it."""
    _listeners.append(listener)

    def end() -> None:
        if listener in _listeners:
            _listeners.remove(listener)

    return end


@contextmanager
def activity(what: str) -> Iterator[None]:
    """Say that something is done as long as the block runs; `what` is a few words such as `building t0:3`."""
    told = [*_listeners]
    for listener in told:
        listener(what, True)
    try:
        yield
    finally:
        for listener in told:
            listener(what, False)
