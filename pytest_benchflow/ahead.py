"""Which items may start before pytest reaches them: those whose rollout nothing in pytest's own order could change."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pytest

from pytest_benchflow.fixture_info import fixture_info
from pytest_benchflow.items import RolloutItem

CHAIN = ("bf_task", "bf_config", "bf_sandbox", "bf_agent", "bf_session", "bf_rollout", "bf_result", "bf_run")
"""The fixtures a conftest may override."""
_DECIDED_WHEN_REACHED = ("skip", "skipif", "xfail")


def may_run_ahead(item: RolloutItem) -> bool:
    """Tell whether an item's rollout can start as soon as a place is free; if in doubt, it cannot."""
    if not _definitions(item):
        return False
    if any(item.get_closest_marker(name) is not None for name in _DECIDED_WHEN_REACHED):
        return False
    return not overridden(item) and not _has_users_function_fixture(item)


def overridden(item: pytest.Item) -> frozenset[str]:
    """Return the names of the chain that a conftest, module or class replaces for this item."""
    definitions = _definitions(item)
    return frozenset(name for name in CHAIN if len(definitions.get(name, ())) > 1)


def _has_users_function_fixture(item: pytest.Item) -> bool:
    return any(
        definition.scope == "function" and _is_from_conftest(definition)
        for definitions in _definitions(item).values()
        for definition in definitions
    )


def _is_from_conftest(definition: pytest.FixtureDef[object]) -> bool:
    code = getattr(definition.func, "__code__", None)
    return code is not None and os.path.basename(code.co_filename) == "conftest.py"


def _definitions(item: pytest.Item) -> Mapping[str, Sequence[pytest.FixtureDef[object]]]:
    info = fixture_info(item)
    return {} if info is None else info.name2fixturedefs
