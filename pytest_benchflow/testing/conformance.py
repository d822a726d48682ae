"""The whole suite that every sandbox backend must pass."""

from __future__ import annotations

from .commands import CommandTests
from .files import FileTests
from .isolation import IsolationTests
from .lifecycle import LifecycleTests
from .mounts import MountTests
from .processes import ProcessTests
from .snapshots import SnapshotTests


class SandboxConformance(
    LifecycleTests, CommandTests, ProcessTests, FileTests, MountTests, SnapshotTests, IsolationTests
):
    """Subclass it in a test module, name your `factory`, and run pytest."""
