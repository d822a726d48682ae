"""The sandbox `local`: namespaces and overlays of the host's own system, for Linux."""

from __future__ import annotations

from .backend import LocalBackend

__all__ = ["LocalBackend"]
