"""The one look behind pytest's public API: nothing public tells which fixtures an item will use.

Everything here is read only, and does without where a pytest release keeps it elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pytest


class FixtureInfo(Protocol):
    """What pytest resolved for one item."""

    @property
    def names_closure(self) -> Sequence[str]:
        """Every fixture the item uses, also indirectly."""

    @property
    def name2fixturedefs(self) -> Mapping[str, Sequence[pytest.FixtureDef[object]]]:
        """The definitions of each, overridden ones first."""


def fixture_info(item: pytest.Item) -> FixtureInfo | None:
    """Return what pytest resolved for an item, None if it cannot be had."""
    return getattr(item, "_fixtureinfo", None)
