"""What some tests need of the machine; where it is missing they are skipped, unless BF_REQUIRE_* asks for them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache

from pytest_benchflow.agents.bundles import BundleStore
from pytest_benchflow.sandboxes.docker import daemon_answers

_FIVE = "gemini,claude-agent-acp,codex-acp,opencode,pi-acp"
AGENTS = os.environ.get("BF_TEST_AGENTS", _FIVE).split(",")
"""`make test-agents` also runs the large ones."""


@cache
def lacks_docker() -> str | None:
    return None if daemon_answers() else "no Docker daemon answers"


@cache
def lacks_podman() -> str | None:
    return None if shutil.which("podman") is not None and os.geteuid() == 0 else "needs podman and root"


@cache
def lacks_agents() -> str | None:
    missing = {*AGENTS} - {bundle.spec.agent for bundle in BundleStore().installed()}
    return f"not installed: {', '.join(sorted(missing))}; run make test-agents" if missing else None


NEEDS: dict[str, Callable[[], str | None]] = {"docker": lacks_docker, "podman": lacks_podman, "agents": lacks_agents}
"""What a marker's tests lack, if anything."""
MISSING = {name: lack for name, lack in NEEDS.items() if not os.environ.get(f"BF_REQUIRE_{name.upper()}")}
"""The same without what has to be there: tests then fail where it is not."""
