"""Which items may start before pytest reaches them: those that nothing in pytest's own order could change."""

from __future__ import annotations

import os

import pytest

from pytest_benchflow.fixture_info import definitions_of, fixture_info
from pytest_benchflow.items import RolloutItem

CHAIN = ("bf_task", "bf_config", "bf_sandbox", "bf_agent", "bf_session", "bf_rollout", "bf_result", "bf_run")
"""The fixtures a conftest may override."""
_DECIDED_WHEN_REACHED = ("skip", "skipif", "xfail")


def may_run_ahead(item: RolloutItem) -> bool:
    """Tell whether an item's rollout can start as soon as a place is free; if in doubt, it cannot."""
    if any(item.get_closest_marker(name) is not None for name in _DECIDED_WHEN_REACHED):
        return False
    return not overridden(item) and not _has_users_function_fixture(item)


def overridden(item: pytest.Item) -> frozenset[str]:
    """Return the names of the chain that a conftest, module or class replaces for this item."""
    return frozenset(name for name in CHAIN if _is_overridden(name, item))


def _is_overridden(name: str, item: pytest.Item) -> bool:
    definitions = definitions_of(name, item)
    return definitions is None or len(definitions) > 1


def _has_users_function_fixture(item: pytest.Item) -> bool:
    info = fixture_info(item)
    return info is None or any(
        definition.scope == "function" and _is_from_conftest(definition)
        for definitions in info.name2fixturedefs.values()
        for definition in definitions
    )


def _is_from_conftest(definition: pytest.FixtureDef[object]) -> bool:
    code = getattr(definition.func, "__code__", None)
    return code is not None and os.path.basename(code.co_filename) == "conftest.py"
