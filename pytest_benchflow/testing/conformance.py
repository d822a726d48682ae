"""The whole suite that every sandbox backend must pass."""

from __future__ import annotations

from pytest_benchflow.testing.backend import BackendTests
from pytest_benchflow.testing.commands import CommandTests
from pytest_benchflow.testing.files import FileTests
from pytest_benchflow.testing.isolation import IsolationTests
from pytest_benchflow.testing.lifecycle import LifecycleTests
from pytest_benchflow.testing.mounts import MountTests
from pytest_benchflow.testing.network import NetworkTests
from pytest_benchflow.testing.processes import ProcessTests
from pytest_benchflow.testing.snapshots import SnapshotTests
from pytest_benchflow.testing.terminals import TerminalTests


class SandboxConformance(
    BackendTests,
    LifecycleTests,
    CommandTests,
    ProcessTests,
    TerminalTests,
    FileTests,
    MountTests,
    SnapshotTests,
    IsolationTests,
    NetworkTests,
):
    """Subclass it in a test module, name your `factory`, and run pytest."""
