"""Test suites for those who write their own backends.

from pytest_benchflow.testing import SandboxConformance

class TestMySandbox(SandboxConformance):
    factory = "my_package.sandbox:MyBackend"
"""

from __future__ import annotations

import pytest

for _name in ("backend", "commands", "files", "isolation", "lifecycle", "mounts", "processes", "snapshots"):
    pytest.register_assert_rewrite(f"pytest_benchflow.testing.{_name}")

from pytest_benchflow.testing.conformance import SandboxConformance  # noqa: E402

__all__ = ["SandboxConformance"]
