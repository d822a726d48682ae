"""Tests with real agents; they are skipped where those are not installed, unless BF_REQUIRE_AGENTS asks for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from real_agents import AGENTS

from pytest_benchflow.agents.bundles import BundleStore


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    if not ours or os.environ.get("BF_REQUIRE_AGENTS"):
        return
    missing = {*AGENTS} - {bundle.spec.agent for bundle in BundleStore().installed()}
    if missing:
        reason = f"not installed: {', '.join(sorted(missing))}; run make test-agents"
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=reason))
