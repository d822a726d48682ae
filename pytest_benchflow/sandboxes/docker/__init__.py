"""The sandbox `docker`: containers of a Docker engine, local or remote."""

from __future__ import annotations

from .address import daemon_answers
from .backend import DockerBackend
from .leftovers import Leftover, list_leftovers, remove_leftovers

__all__ = ["DockerBackend", "Leftover", "daemon_answers", "list_leftovers", "remove_leftovers"]
