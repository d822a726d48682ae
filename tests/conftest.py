"""Builders that all tests share: a task directory, and a project to run pytest in."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import yaml  # noqa: F401 - pytester forgets what a test imports, and the C part of this does not survive a second import
from needs import MISSING
from project import INI, WARM, Project, write_task

# It has to run where the wheel is installed and this folder is not; `make wheel-test` does that.
collect_ignore = ["wheel"]

# A busy machine is no reason for a property to fail.
hypothesis.settings.register_profile("benchflow", deadline=None)
hypothesis.settings.load_profile("benchflow")

# Whoever runs the tests in the background may have it ignored, and whatever they start would ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW = ("test_real_agents.py", "test_sandbox_as_user.py", "test_docker_conformance.py", "test_patterns.py")
"""Not both files with real agents at once: sixteen of them on two cores take longer than their time limits."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take minutes, so that no worker is left with one of them at the end."""
    items.sort(key=lambda item: SLOW.index(item.path.name) if item.path.name in SLOW else len(SLOW))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what cannot run here; all of it at this one place, for pytest prints a line per place and reason."""
    for need, lacks in MISSING.items():
        if item.get_closest_marker(need) and (reason := lacks()):
            pytest.skip(reason)


def pytest_unconfigure() -> None:
    """End what serves all runs of pytest."""
    WARM.close()


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., Path]:
    """Give tests the function that writes a task below the temporary directory."""

    def make(name: str = "hello", **parts: object) -> Path:
        return write_task(tmp_path / name, **parts)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def new_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Project]:
    """Give tests and module-wide runs the function that makes an empty project."""
    cache = tmp_path_factory.mktemp("benchflow-cache")

    def make(name: str = "project", ini: str = INI) -> Project:
        root = tmp_path_factory.mktemp(name)
        if ini:
            (root / "pytest.ini").write_text(ini)
        return Project(root, cache)

    return make


@pytest.fixture
def project(new_project: Callable[..., Project]) -> Project:
    """Give one test an empty project."""
    return new_project()
