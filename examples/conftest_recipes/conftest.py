"""Copy to the folder whose tasks it is to change: everything here applies below that folder only."""

from dataclasses import replace

import pytest

FLAKY = {"collect-paged-api"}


def pytest_bf_modify_config(config, task):
    """Give hard tasks twice the time, and accept partial credit on them."""
    if task.difficulty != "hard":
        return None
    limit = task.steps[0].agent_timeout_sec
    return replace(config, threshold=0.8, timeout=limit and 2 * limit)


def pytest_collection_modifyitems(items):
    """Run tasks that are known to be flaky, and report them, but never let them fail the run."""
    for item in items:
        if item.get_closest_marker("bf") and item.path.parent.name in FLAKY:
            item.add_marker(pytest.mark.bf_quarantine)
