"""Run a command and tell what its whole process tree cost."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

WATCH_EVERY_SEC = 0.1


@dataclass(frozen=True)
class Cost:
    """What a command took; the last two only if it was watched."""

    wall: float
    cpu: float
    rss_mb: float
    output: str
    tree_mb: float = 0.0
    processes: int = 0


@dataclass(frozen=True)
class Checkout:
    """A working copy of this project, and the Python it is installed in."""

    root: Path
    python: str

    def pytest(
        self, *args: str, cwd: Path, watch: bool = False, under: tuple[str, ...] = (), cache: bool = False
    ) -> Cost:
        """Run pytest in a process of its own, under another program if given, without what the caller configured."""
        # Hypothesis is here for our tests; its plugin imports all of it at the end of every run.
        plugins = ("-p", "no:hypothesispytest", *(() if cache else ("-p", "no:cacheprovider")))
        return run([*under, self.python, "-m", "pytest", *plugins, *args], cwd, watch=watch)


HERE = Checkout(Path(__file__).parents[1], sys.executable)


def run(argv: list[str], cwd: Path, *, watch: bool = False) -> Cost:
    """Run a command; CPU is that of all its descendants where a cgroup can count it, else of those it waited for."""
    group = _Group()
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        # Entering the group is the child's first act; preexec_fn is fine here, this process has one thread.
        child = subprocess.Popen(argv, cwd=cwd, stdout=output, stderr=output, preexec_fn=group.enter)
        tree_mb, processes = _watch(child.pid) if watch else (0.0, 0)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        output.seek(0)
        text = output.read()
    cpu = group.cpu() or usage.ru_utime + usage.ru_stime
    if child.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {child.returncode}\n{text}")
    return Cost(wall, cpu, usage.ru_maxrss / 1024, text, tree_mb, processes)


def descendants(top: int) -> list[int]:
    """Return the ids of all processes below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [top]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def memory_mb(pids: list[int]) -> float:
    """Return the memory of processes, what they share counted once."""
    return sum(map(_pss_kb, pids)) / 1024


def _pss_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _watch(top: int) -> tuple[float, int]:
    """Return the most memory and the most processes a tree had, once its top has ended."""
    most_mb, most = 0.0, 0
    # Left to be waited for, so that its usage is still there.
    while os.waitid(os.P_PID, top, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        tree = [top, *descendants(top)]
        most_mb, most = max(most_mb, memory_mb(tree)), max(most, len(tree))
        time.sleep(WATCH_EVERY_SEC)
    return most_mb, most


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
