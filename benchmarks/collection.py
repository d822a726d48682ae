"""Collecting 10,000 tasks beside pytest collecting 10,000 one-test files, and what the plugin costs other suites."""

from __future__ import annotations

import re
import shutil
import statistics
from pathlib import Path
from typing import NamedTuple

import measure
from measure import HERE, Checkout
from workloads import write_project, write_tasks, write_test_files

COUNT = 10_000
ROUNDS = 15


def collecting(scratch: Path) -> None:
    """Print seconds and ratios; the bars are 0.4 the first time and 0.2 the second."""
    write_both(scratch)
    files, first, second = collect(HERE, scratch)
    print(f"collect {COUNT} test files   {files.seconds:6.2f} s {files.cpu:6.2f} s of CPU")
    for name, bar, ours in (("cold", 0.4, first), ("again", 0.2, second)):
        ratios = f"{ours.seconds / files.seconds:.2f} × and {ours.cpu / files.cpu:.2f} × (bar {bar:.2f})"
        print(f"collect {COUNT} tasks, {name:5} {ours.seconds:6.2f} s {ours.cpu:6.2f} s of CPU, {ratios}")


def overhead(scratch: Path) -> None:
    """Print what the installed plugin adds to a run without tasks; the bar is 40 ms."""
    write_suite(scratch)
    added = statistics.median(added_cpu(HERE, scratch) for _ in range(ROUNDS))
    print(f"added to a suite without tasks {added * 1000:5.1f} ms of CPU (bar 40)")


class Collected(NamedTuple):
    """What pytest says it took, and what the whole process cost: the witness on a machine that others use too."""

    seconds: float
    cpu: float


def write_both(project: Path) -> None:
    """Write as many tasks as test files."""
    write_project(project)
    write_tasks(project / "tasks", COUNT)
    write_test_files(project / "files", COUNT)


def collect(checkout: Checkout, project: Path) -> tuple[Collected, Collected, Collected]:
    """Collect the test files without the plugin, the tasks for the first time, and the tasks again."""
    for stale in (project / "files" / "__pycache__", project / ".pytest_cache"):
        shutil.rmtree(stale, ignore_errors=True)
    files = _collect(checkout, project, "files", "-p", "no:benchflow")
    return files, _collect(checkout, project, "tasks"), _collect(checkout, project, "tasks")


def _collect(checkout: Checkout, project: Path, folder: str, *more: str) -> Collected:
    # With pytest's cache, unlike other measurements: the index of tasks lives there.
    done = measure.run([checkout.python, "-m", "pytest", folder, "--collect-only", "-q", *more], project)
    found = re.search(r"collected in ([\d.]+)s", done.output)
    assert found, done.output[-500:]
    return Collected(float(found[1]), done.cpu)


def write_suite(project: Path) -> None:
    """Write a suite of one test and no task."""
    write_project(project)
    write_test_files(project / "tests", 1)


def added_cpu(checkout: Checkout, project: Path) -> float:
    """Return the CPU seconds that the plugin adds; of one pair, for two runs in a row are equally slow."""
    ours = checkout.pytest("-q", cwd=project)
    return ours.cpu - checkout.pytest("-q", "-p", "no:benchflow", cwd=project).cpu


def added_instructions(checkout: Checkout, project: Path) -> float:
    """Return the instructions that the plugin adds: unlike seconds, nearly the same in every run."""
    return _instructions(checkout, project) - _instructions(checkout, project, "-p", "no:benchflow")


def _instructions(checkout: Checkout, project: Path, *more: str) -> float:
    # The order of sets, and with it the work, follows from the seed.
    counted = ("env", "PYTHONHASHSEED=0", "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
    done = checkout.pytest("-q", *more, cwd=project, under=counted)
    found = re.search(r"Collected : (\d+)", done.output)
    assert found, done.output[-500:]
    return float(found[1])
