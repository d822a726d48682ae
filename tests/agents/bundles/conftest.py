"""A store of its own for each test, and an npm that does as it is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bundle_helpers import FakeNpm

from pytest_benchflow.agents.bundles.store import BundleStore


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    """Give an empty store."""
    return BundleStore(tmp_path / "agents")


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNpm:
    """Give the fake npm, found before any other."""
    fake = FakeNpm(tmp_path / "fake-npm")
    fake.write()
    monkeypatch.setenv("PATH", f"{fake.directory}{os.pathsep}{os.environ['PATH']}")
    return fake
