"""Run a command and tell what its whole process tree cost."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    wall: float
    cpu: float
    rss_mb: float
    output: str


def pytest(*args: str, cwd: Path) -> Cost:
    """Run pytest in a process of its own, without what the caller's configuration would add."""
    # Hypothesis is here for our tests; its plugin imports all of it at the end of every run.
    return run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *args], cwd)


def run(argv: list[str], cwd: Path) -> Cost:
    """Run a command; CPU is that of all its descendants where a cgroup can count it, else of those it waited for."""
    group = _Group()
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        # Entering the group is the child's first act; preexec_fn is fine here, this process has one thread.
        child = subprocess.Popen(argv, cwd=cwd, stdout=output, stderr=output, preexec_fn=group.enter)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        output.seek(0)
        text = output.read()
    if child.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {child.returncode}\n{text}")
    return Cost(wall, group.cpu() or usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text)


class _Group:
    """A control group of this measurement's own, if this process may make one."""

    _ROOTS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))

    def __init__(self) -> None:
        self._path: Path | None = None
        for root in self._ROOTS:
            path = root / f"benchflow-{os.getpid()}-{time.monotonic_ns()}"
            try:
                path.mkdir()
                (path / "cgroup.procs").open("w").close()
            except OSError:
                continue
            self._path = path
            return

    def enter(self) -> None:
        if self._path is not None:
            (self._path / "cgroup.procs").write_text(str(os.getpid()))

    def cpu(self) -> float | None:
        if self._path is None:
            return None
        try:
            if (self._path / "cpuacct.usage").exists():
                return int((self._path / "cpuacct.usage").read_text()) / 1e9
            return int((self._path / "cpu.stat").read_text().split()[1]) / 1e6
        finally:
            try:
                self._path.rmdir()
            except OSError:
                print(f"left behind: {self._path}", file=sys.stderr)
