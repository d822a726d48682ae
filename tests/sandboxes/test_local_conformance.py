"""The local sandbox passes the public suite, as root and as an ordinary user."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_benchflow.sandboxes.local.cgroups import find_parents
from pytest_benchflow.testing.conformance import SandboxConformance

PARENTS = find_parents(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
CONTROLLERS = {name for parent in PARENTS for name in parent.controllers}


class TestLocalSandbox(SandboxConformance):
    factory = "pytest_benchflow.sandboxes.local:LocalBackend"
    enforces_memory = "memory" in CONTROLLERS
    enforces_cpus = "cpu" in CONTROLLERS
    enforces_pids = "pids" in CONTROLLERS
    # More than may be held of it in memory. The same code moves files for both, so root's run is enough for that.
    big_file_bytes = 512 << 20 if os.geteuid() == 0 else 32 << 20
