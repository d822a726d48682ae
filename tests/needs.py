"""What some tests need of the machine; where it is missing they are skipped, unless BF_REQUIRE_* asks for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache

from pytest_benchflow.agents.bundles.store import BundleStore
from pytest_benchflow.sandboxes.docker.client import daemon_answers

_FIVE = "gemini,claude-agent-acp,codex-acp,opencode,pi-acp"
AGENTS = os.environ.get("BF_TEST_AGENTS", _FIVE).split(",")
"""`make test-agents` also runs the large ones."""


@cache
def lacks_docker() -> str | None:
    return None if daemon_answers() else "no Docker daemon answers"


@cache
def lacks_compose() -> str | None:
    words = ["docker", "compose", "version"]
    found = shutil.which("docker") and subprocess.run(words, capture_output=True, check=False).returncode == 0
    return None if found else "no docker compose here"


@cache
def lacks_podman() -> str | None:
    return None if shutil.which("podman") is not None and os.geteuid() == 0 else "needs podman and root"


@cache
def lacks_agents() -> str | None:
    missing = {*AGENTS} - {bundle.spec.agent for bundle in BundleStore().installed()}
    return f"not installed: {', '.join(sorted(missing))}; run make test-agents" if missing else None


@cache
def lacks_registries() -> str | None:
    with tempfile.TemporaryDirectory() as scratch:
        words = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", scratch, "six"]
        works = subprocess.run(words, capture_output=True, check=False, timeout=60).returncode == 0
    return None if works else "no package index answers"


@cache
def lacks_compiler() -> str | None:
    return None if shutil.which("cc") else "no C compiler here"


@cache
def lacks_browser() -> str | None:
    missing = [program for program in ("chromium", "chromedriver") if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


_NEEDS: list[tuple[str, str, Callable[[], str | None]]] = [
    ("docker", "BF_REQUIRE_DOCKER", lacks_docker),
    ("compose", "BF_REQUIRE_DOCKER", lacks_compose),
    ("podman", "BF_REQUIRE_PODMAN", lacks_podman),
    ("agents", "BF_REQUIRE_AGENTS", lacks_agents),
    ("registries", "BF_REQUIRE_REGISTRIES", lacks_registries),
    ("browser", "BF_REQUIRE_BROWSER", lacks_browser),
    ("compiler", "BF_REQUIRE_COMPILER", lacks_compiler),
]
MISSING = {marker: lacks for marker, required, lacks in _NEEDS if not os.environ.get(required)}
"""What a marker's tests may lack; what has to be there is not looked for, tests then fail where it is not."""
