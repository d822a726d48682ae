"""Decide whether a task file is meant for us at all, before complaining about it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .config import TaskConfig
from .spelling import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

_HARBOR = frozenset(TaskConfig.model_fields) | frozenset(ROOT)
_GENERIC = frozenset({"name", "version", "source", "user", "image", "metadata"})
_SIBLINGS = ("environment", "tests", "instruction.md")
_NATIVE_SIBLINGS = ("environment", "verifier", "oracle", "tests")


def has_shape(data: Mapping[str, object], *, native: bool) -> bool:
    """Say whether a file has a key of a task; note files with front matter often share the generic ones."""
    return not (_native_keys() - _GENERIC if native else _HARBOR).isdisjoint(data)


def _native_keys() -> frozenset[str]:
    from .document import DocumentConfig

    return frozenset(DocumentConfig.model_fields) | frozenset(ROOT) | {"image"}


def has_siblings(directory: str, *, native: bool) -> bool:
    """Say whether the directory holds another part of a task."""
    names = _NATIVE_SIBLINGS if native else _SIBLINGS
    return any(os.path.lexists(f"{directory}/{name}") for name in names)
