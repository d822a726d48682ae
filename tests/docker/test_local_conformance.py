"""The local sandbox passes the public suite too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pytest_benchflow.testing import SandboxConformance

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the local sandbox is for Linux"),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="this run of the suite needs root"),
]


def _controllers() -> set[str]:
    """Name the control groups that the caller may make."""
    if sys.platform != "linux":
        return set()
    from pytest_benchflow.sandboxes.local.cgroups import find_parents

    parents = find_parents(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    return {name for parent in parents for name in parent.controllers}


class TestLocalSandbox(SandboxConformance):
    factory = "pytest_benchflow.sandboxes.local:LocalBackend"
    enforces_memory = "memory" in _controllers()
    enforces_cpus = "cpu" in _controllers()
