"""Answer an agent that asks whether it may use a tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from pytest_benchflow.core.types import Json

PermissionPolicy: TypeAlias = Callable[[Mapping[str, Json]], str | None]
"""Takes the request's parameters and returns the id of the option to choose; None calls the request off."""


def approve_all(request: Mapping[str, Json]) -> str | None:
    """Allow, for good where that is offered: the sandbox is the limit, not the agent's own caution."""
    options = offered(request)
    for kind in ("allow_always", "allow_once"):
        for option, its_kind in options:
            if its_kind == kind:
                return option
    return next((option for option, kind in options if not kind.startswith("reject")), None)


def reject_all(request: Mapping[str, Json]) -> str | None:
    """Refuse, once where that is offered, so that the agent goes on without."""
    options = offered(request)
    for kind in ("reject_once", "reject_always"):
        for option, its_kind in options:
            if its_kind == kind:
                return option
    return None


def offered(request: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return id and kind of each option of a request."""
    options = request.get("options")
    pairs = []
    for option in options if isinstance(options, list) else []:
        if isinstance(option, dict) and isinstance(name := option.get("optionId"), str):
            pairs.append((name, str(option.get("kind"))))
    return pairs
