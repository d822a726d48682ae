"""The sandbox `docker`: containers of a Docker engine, local or remote; importing it does not import the SDK."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .address import daemon_answers
    from .backend import DockerBackend
    from .leftovers import Leftover, list_leftovers, remove_leftovers

_HOMES = {
    "DockerBackend": "backend",
    "Leftover": "leftovers",
    "daemon_answers": "address",
    "list_leftovers": "leftovers",
    "remove_leftovers": "leftovers",
}

__all__ = ["DockerBackend", "Leftover", "daemon_answers", "list_leftovers", "remove_leftovers"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
