"""Write small projects with tasks in them, and run pytest there as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from warm_pytest import WarmPytest

SOLVE = "echo done > /app/done.txt"
TEST = "if [ -e /app/done.txt ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
NO_DAEMON = "unix:///nowhere/docker.sock"
"""Keeps `auto` on the local sandbox, whatever runs on this machine."""
DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\n"
INI = "[pytest]\nfilterwarnings = error\n"
RUN_TIMEOUT_SEC = 120
PYTEST = [sys.executable, "-m", "pytest"]
OPTIONS = ["-p", "no:hypothesispytest"]
"""Not hypothesis: its plugin imports all of it at the end of every run, which takes longer than most runs here."""
WARM = WarmPytest()


def write_files(root: Path, files: Mapping[str, str]) -> Path:
    """Write text files below a directory; scripts become executable."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        if name.endswith(".sh"):
            path.chmod(0o755)
    return root


def write_task(
    path: Path,
    *,
    solve: str | None = SOLVE,
    test: str | None = TEST,
    toml: str = "",
    instruction: str = "Make done.txt.\n",
    dockerfile: str = DOCKERFILE,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write a Harbor task that the oracle passes and nop fails, unless told otherwise."""
    parts = {
        "task.toml": f'schema_version = "1.3"\n{textwrap.dedent(toml)}',
        "instruction.md": instruction,
        "environment/Dockerfile": dockerfile,
    }
    if test is not None:
        parts["tests/test.sh"] = f"#!/bin/bash\n{textwrap.dedent(test)}\n"
    if solve is not None:
        parts["solution/solve.sh"] = f"#!/bin/bash\n{textwrap.dedent(solve)}\n"
    return write_files(path, {**parts, **(files or {})})


def write_native_task(path: Path, *, front: str = "", body: str = "Make done.txt.\n") -> Path:
    """Write the same task in the native layout."""
    head = f'---\nschema_version: "1.3"\n{textwrap.dedent(front)}---\n'
    return write_files(
        path,
        {
            "task.md": head + body,
            "environment/Dockerfile": DOCKERFILE,
            "verifier/test.sh": f"#!/bin/bash\n{TEST}\n",
            "oracle/solve.sh": f"#!/bin/bash\n{SOLVE}\n",
        },
    )


@dataclass(frozen=True)
class Project:
    """A directory in which pytest is run."""

    root: Path
    cache: Path

    def write(self, files: Mapping[str, str]) -> Project:
        """Write files below the root."""
        write_files(self.root, files)
        return self

    def task(self, name: str, **parts: object) -> Path:
        """Write a Harbor task below the root."""
        return write_task(self.root / name, **parts)  # type: ignore[arg-type]

    def run(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout_sec: float = RUN_TIMEOUT_SEC,
        cold: bool = False,
    ) -> pytest.RunResult:
        """Run pytest to its end in a process of its own; `cold` also in an interpreter of its own."""
        began, variables = time.monotonic(), self.environment(env)
        with tempfile.TemporaryDirectory(prefix="bf-test-output-") as scratch:
            out, err = Path(scratch, "out"), Path(scratch, "err")
            if cold or not WARM.can_run(variables):
                with out.open("wb") as stdout, err.open("wb") as stderr:
                    status = subprocess.run(
                        [*PYTEST, *OPTIONS, *args],
                        cwd=cwd or self.root,
                        env=variables,
                        stdin=subprocess.DEVNULL,
                        stdout=stdout,
                        stderr=stderr,
                        timeout=timeout_sec,
                        check=False,
                    ).returncode
            else:
                status = WARM.run(
                    [*OPTIONS, *args],
                    cwd=cwd or self.root,
                    env=variables,
                    out=out,
                    err=err,
                    timeout_sec=timeout_sec,
                )
            texts = [path.read_text("utf-8", "replace") for path in (out, err)]
        print(*texts, sep="\n")
        return pytest.RunResult(status, *(text.splitlines() for text in texts), time.monotonic() - began)

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start pytest in a process group of its own, with its output in `pytest.log`."""
        with (self.root / "pytest.log").open("wb") as log:
            return subprocess.Popen(
                [*PYTEST, *OPTIONS, *args],
                cwd=self.root,
                env=self.environment(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return an environment that knows nothing of the pytest run we are in."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "GITHUB_", "BF_"))}
        kept.pop("CI", None)
        own = {"BF_CACHE_DIR": str(self.cache), "COLUMNS": "160", "PY_COLORS": "0", "DOCKER_HOST": NO_DAEMON}
        return {**kept, **own, **(more or {})}

    def ids(self, *args: str) -> list[str]:
        """Return the ids that pytest collects, in its order."""
        listed = self.run("--collect-only", "-q", "--no-header", *args).outlines
        return [line for line in listed if "::" in line]

    def results(self, job: str = "*") -> dict[str, dict[str, object]]:
        """Return every result.json of the jobs directory, by the name of its directory."""
        found = sorted(self.root.glob(f"jobs/{job}/*/result.json"))
        return {path.parent.name: json.loads(path.read_text()) for path in found}

    def rollout_dirs(self, job: str = "*") -> list[Path]:
        """Return the directories of all rollouts."""
        return sorted(path for path in self.root.glob(f"jobs/{job}/*") if path.is_dir())

    def rollout_dir(self) -> Path:
        """Return the directory of the only rollout."""
        (directory,) = self.rollout_dirs()
        return directory


def properties(case: ET.Element) -> dict[str, str]:
    """Return the properties of a JUnit test case."""
    return {item.attrib["name"]: item.attrib["value"] for item in case.iterfind("properties/property")}


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait until a condition holds, and fail if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)
