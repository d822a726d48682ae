"""A run that is broken off leaves nothing behind: no process, no mount, no temporary directory."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from project import Project, kill_group, wait_for

N_TASKS = 16


@pytest.fixture
def sleeping(new_project: Callable[..., Project], tmp_path: Path) -> Iterator[Project]:
    """Make tasks whose solution sleeps, after a note that it began."""
    project = new_project()
    for number in range(N_TASKS):
        project.task(f"tasks/t{number:02}", solve="sleep 4321")
    yield project


def processes() -> dict[int, str]:
    """Return the command line of every process."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
    return found


def sleepers() -> list[int]:
    return [pid for pid, command in processes().items() if command == "sleep 4321"]


def descendants(root: int) -> set[int]:
    """Return a process and everything it started, directly or not."""
    parents = {}
    for pid in processes():
        try:
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    return found


def start_times(pids: set[int]) -> dict[int, str]:
    """Return when each process started, which tells it from a later one with the same number."""
    times = {}
    for pid in pids:
        try:
            times[pid] = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        except OSError:
            continue
    return times


def alive(known: dict[int, str]) -> list[int]:
    """Return those of the known processes that still run; one that waits to be reaped does not."""
    found = []
    for pid, started in known.items():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[19] == started and fields[0] != "Z":
            found.append(pid)
    return found


def temporary_directories() -> set[str]:
    found = {f"/tmp/{name}" for name in os.listdir("/tmp") if not name.startswith(("pytest-", "hypothesis"))}
    return found | {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}


def mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--bf-concurrency=4")], ids=["one-process", "two-workers"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_a_signal_in_the_middle_leaves_nothing(
    sleeping: Project, number: signal.Signals, workers: tuple[str, ...]
) -> None:
    directories, mounted = temporary_directories(), mounts()
    before = set(sleepers())
    runner = sleeping.start("tasks", "--bf-concurrency=16", *workers)
    try:
        wanted = 2 if workers else 8
        wait_for(lambda: len(set(sleepers()) - before) >= wanted or runner.poll() is not None, "the rollouts' start")
        assert runner.poll() is None, (sleeping.root / "pytest.log").read_text()
        known = start_times(descendants(runner.pid))
        assert len(known) > wanted
        os.kill(runner.pid, number)
        status = runner.wait(60)
        wait_for(lambda: not alive(known), "the end of all its processes", 30)
    finally:
        kill_group(runner)
    if number is not signal.SIGKILL:
        assert status == pytest.ExitCode.INTERRUPTED, (sleeping.root / "pytest.log").read_text()
    assert not set(sleepers()) - before
    assert mounts() == mounted
    wait_for(lambda: not temporary_directories() - directories, f"removal of {temporary_directories() - directories}", 10)


def test_ctrl_c_shows_no_traceback_of_ours(sleeping: Project) -> None:
    before = set(sleepers())
    runner = sleeping.start("tasks")
    try:
        wait_for(lambda: len(set(sleepers()) - before) >= 2, "the rollouts' start")
        os.kill(runner.pid, signal.SIGINT)
        runner.wait(60)
    finally:
        kill_group(runner)
    text = (sleeping.root / "pytest.log").read_text()
    assert "KeyboardInterrupt" in text
    assert "Exception ignored" not in text
    assert "Task was destroyed" not in text
    assert "CancelledError" not in text


def test_the_first_failure_stops_what_else_runs(new_project: Callable[..., Project]) -> None:
    project = new_project()
    project.task("tasks/a-fails", solve="exit 0")
    project.task("tasks/b-sleeps", solve="sleep 4321")
    before = set(sleepers())
    done = project.run("tasks", "-x")
    done.assert_outcomes(failed=1)
    assert not set(sleepers()) - before
