"""The one look behind pytest's public API: nothing public tells which fixtures an item will use, or who defines them.

Everything here is read only, and does without where a pytest release keeps it elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pytest

Definitions = Sequence[pytest.FixtureDef[object]]


class FixtureInfo(Protocol):
    """What pytest resolved for one item."""

    @property
    def names_closure(self) -> Sequence[str]:
        """Every fixture the item uses, also indirectly."""

    @property
    def name2fixturedefs(self) -> Mapping[str, Definitions]:
        """The definitions of each, overridden ones first."""


def fixture_info(item: pytest.Item) -> FixtureInfo | None:
    """Return what pytest resolved for an item, None if it cannot be had."""
    return getattr(item, "_fixtureinfo", None)


def definitions_of(name: str, item: pytest.Item) -> Definitions | None:
    """Return the definitions of a fixture that an item would see, None if they cannot be had."""
    manager: Any = getattr(item.session, "_fixturemanager", None)
    try:
        found: Definitions | None = manager.getfixturedefs(name, item)
    except (AttributeError, TypeError):
        return None
    return found
