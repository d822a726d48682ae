"""Tests that need a Docker engine; without one they are skipped, or fail where BF_REQUIRE_DOCKER asks for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_benchflow.sandboxes.docker import daemon_answers

NEEDS_NO_DAEMON = {"test_local_conformance.py"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents and item.path.name not in NEEDS_NO_DAEMON]
    for item in ours:
        item.add_marker(pytest.mark.docker)
    if ours and not os.environ.get("BF_REQUIRE_DOCKER") and not daemon_answers():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason="no Docker daemon answers"))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "bf-cache"))
