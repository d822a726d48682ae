"""Repeat tests that are marked with `bf_trials` and use our fixtures."""

from __future__ import annotations

import pytest

from pytest_benchflow.settings import MAX_TRIALS


def repeat(metafunc: pytest.Metafunc, marker: pytest.Mark) -> None:
    """Make as many items of a test as its marker asks for."""
    metafunc.fixturenames.append("bf_trial")
    metafunc.parametrize("bf_trial", range(1, _trials(metafunc, marker) + 1))


def _trials(metafunc: pytest.Metafunc, marker: pytest.Mark) -> int:
    number = marker.args[0] if len(marker.args) == 1 else None
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_TRIALS:
        name = metafunc.definition.nodeid
        pytest.fail(f"{name}: bf_trials takes one number from 1 to {MAX_TRIALS}; write bf_trials(3)", pytrace=False)
    return number
