"""The sandbox `docker`: containers of a Docker engine, local or remote; importing it does not import the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.late import late

if TYPE_CHECKING:
    from .address import daemon_answers
    from .backend import DockerBackend
    from .leftovers import Leftover, list_leftovers, remove_leftovers

__all__ = ["DockerBackend", "Leftover", "daemon_answers", "list_leftovers", "remove_leftovers"]

__getattr__, __dir__ = late(
    __name__,
    {
        "address": ("daemon_answers",),
        "backend": ("DockerBackend",),
        "leftovers": ("Leftover", "list_leftovers", "remove_leftovers"),
    },
)
