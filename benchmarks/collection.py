"""Collecting 10,000 tasks beside pytest collecting 10,000 one-test files, and what the plugin costs other suites."""

from __future__ import annotations

import re
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import measure
from workloads import write_tasks, write_test_files

COUNT = 10_000
ROUNDS = 15


def collecting(scratch: Path) -> None:
    """Print seconds and ratios; the bars are 0.4 the first time and 0.2 the second."""
    write_tasks(scratch / "tasks", COUNT)
    write_test_files(scratch / "files", COUNT)
    (scratch / "pytest.ini").write_text("[pytest]\n")
    files = _collect(scratch, "files", "-p", "no:benchflow")
    first = _collect(scratch, "tasks")
    second = _collect(scratch, "tasks")
    print(f"collect {COUNT} test files   {files.seconds:6.2f} s {files.cpu:6.2f} s of CPU")
    for name, bar, ours in (("cold", 0.4, first), ("again", 0.2, second)):
        ratios = f"{ours.seconds / files.seconds:.2f} × and {ours.cpu / files.cpu:.2f} × (bar {bar:.2f})"
        print(f"collect {COUNT} tasks, {name:5} {ours.seconds:6.2f} s {ours.cpu:6.2f} s of CPU, {ratios}")


def overhead(scratch: Path) -> None:
    """Print what the installed plugin adds to a run without tasks; the bar is 40 ms."""
    suite = scratch / "suite"
    write_test_files(suite, 1)
    (suite / "pytest.ini").write_text("[pytest]\n")
    pairs = [
        (measure.pytest("-q", cwd=suite).cpu, measure.pytest("-q", "-p", "no:benchflow", cwd=suite).cpu)
        for _ in range(ROUNDS)
    ]
    # Of each pair, for the two runs of one are equally slow.
    added = statistics.median(ours - plain for ours, plain in pairs)
    print(f"added to a suite without tasks {added * 1000:5.1f} ms of CPU (bar 40)")


class Collected(NamedTuple):
    """What pytest says it took, and what the whole process cost: the witness on a machine that others use too."""

    seconds: float
    cpu: float


def _collect(scratch: Path, folder: str, *more: str) -> Collected:
    done = measure.run([sys.executable, "-m", "pytest", folder, "--collect-only", "-q", *more], scratch)
    found = re.search(r"collected in ([\d.]+)s", done.output)
    assert found, done.output[-500:]
    return Collected(float(found[1]), done.cpu)
