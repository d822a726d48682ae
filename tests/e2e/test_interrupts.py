"""A run that is broken off leaves nothing behind: no process, no mount, no temporary file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bots import BOTS
from processes import alive, all_pids, command_line, descendants, start_times
from project import Project, wait_for

from pytest_benchflow.cli.main import main


@dataclass
class Broken:
    """A run of eight rollouts that sleep, and what is known of its processes."""

    project: Project
    seconds: int
    runner: subprocess.Popen[bytes]
    known: dict[int, str] = field(default_factory=dict)

    @property
    def log(self) -> str:
        """Return what pytest printed."""
        return (self.project.root / "pytest.log").read_text()

    def wait_until_asleep(self, at_least: int) -> None:
        """Wait until so many agents sleep, and remember every process of the run."""
        wait_for(
            lambda: len(sleepers(self.seconds)) >= at_least or self.runner.poll() is not None, "the rollouts' start"
        )
        assert self.runner.poll() is None, self.log
        self.known = start_times(descendants(self.runner.pid))
        assert len(self.known) > at_least

    def send(self, number: int) -> int:
        """Send a signal to the runner alone, and return the status it ends with."""
        os.kill(self.runner.pid, number)
        return self.runner.wait(60)

    def end(self) -> None:
        """End what a test left running."""
        for pid in {*alive(self.known), *sleepers(self.seconds)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.runner.kill()
        self.runner.wait()


@pytest.fixture
def start(new_project: Callable[..., Project]) -> Iterator[Callable[..., Broken]]:
    """Give a test the function that starts such a run."""
    started: list[Broken] = []

    def start_run(*args: str) -> Broken:
        project, seconds = new_project(), 10**6 + uuid.uuid4().int % 10**9
        for number in range(8):
            project.task(f"tasks/t{number:02}", solve=f"sleep {seconds}")
        temporary = project.root / "tmp"
        temporary.mkdir()
        runner = project.start("tasks", "--bf-concurrency=8", *args, env={"TMPDIR": str(temporary)})
        started.append(Broken(project, seconds, runner))
        return started[-1]

    yield start_run
    for run in started:
        run.end()


def sleepers(seconds: int) -> list[int]:
    """Return the agents that sleep for just this long."""
    return [pid for pid in all_pids() if command_line(pid) == f"sleep\0{seconds}\0".encode()]


@pytest.mark.parametrize(
    ("number", "args", "at_least"),
    [
        (signal.SIGINT, (), 8),
        (signal.SIGTERM, (), 8),
        (signal.SIGTERM, ("-n", "2", "--bf-concurrency=4"), 2),
        (signal.SIGKILL, (), 8),
        (signal.SIGKILL, ("-n", "2", "--bf-concurrency=4"), 2),
    ],
    ids=["SIGINT", "SIGTERM", "SIGTERM-two-workers", "SIGKILL", "SIGKILL-two-workers"],
)
def test_a_signal_in_the_middle_leaves_nothing(
    start: Callable[..., Broken], number: signal.Signals, args: tuple[str, ...], at_least: int
) -> None:
    run = start(*args)
    run.wait_until_asleep(at_least)
    status = run.send(number)
    wait_for(lambda: not alive(run.known), "the end of all processes of the run", 30)
    expected = -signal.SIGKILL if number is signal.SIGKILL else pytest.ExitCode.INTERRUPTED
    assert status == expected, run.log
    assert not sleepers(run.seconds)
    assert not [name for name in os.listdir(run.project.root / "tmp") if not name.startswith("pytest-of-")]
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(run.project.root) not in mounts
    assert str(run.project.cache) not in mounts
    # What was asked for is on disk, whatever came of it.
    directories = run.project.rollout_dirs()
    assert len(directories) >= at_least
    assert all((directory / "config.json").exists() for directory in directories)
    if number is signal.SIGINT:  # pytest says that it was interrupted, and nobody says anything else
        assert "KeyboardInterrupt" in run.log
        for word in ("Exception ignored", "Task was destroyed", "never retrieved", "CancelledError", "Traceback"):
            assert word not in run.log


def test_the_first_failure_stops_what_else_runs(project: Project) -> None:
    seconds = 10**6 + uuid.uuid4().int % 10**9
    project.task("tasks/a-fails", solve="exit 0")
    project.task("tasks/b-sleeps", solve=f"sleep {seconds}")
    done = project.run("tasks", "-x")
    done.assert_outcomes(failed=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["*stopping after 1 failures*"])
    assert not sleepers(seconds)


WAIT = """
import time
from pathlib import Path


def pytest_bf_rollout_result(result):
    jobs, deadline = Path("jobs"), time.monotonic() + 30
    while time.monotonic() < deadline:
        if [*jobs.glob("*/b-passes__*/result.json")] and [*jobs.glob("*/c-sleeps__*/prompts.json")]:
            return
        time.sleep(0.05)
"""


def test_what_ran_ahead_of_the_stop_is_in_the_table_with_its_cost(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write({"conftest.py": BOTS + WAIT})
    project.task("tasks/a-fails", instruction="COST: 0.25")
    project.task("tasks/b-passes", instruction="RUN: echo done > done.txt\nCOST: 0.5")
    project.task("tasks/c-sleeps", instruction="RUN: sleep 1000")
    done = project.run("tasks", "-x", "--bf-agent=bot", "--bf-concurrency=3", "--bf-json=r.json")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["agent * cancelled * cost *", "bot *1 of 2 * 1 * $0.75 (partial) *"])
    assert [result["cancelled"] for result in project.results().values()] == [False, False, True]
    report = json.loads((project.root / "r.json").read_text())
    assert [rollout["status"] for rollout in report["rollouts"]] == ["failed", "passed", "cancelled"]
    assert [(row["rollouts"], row["errors"], row["cancelled"]) for row in report["summary"]] == [(3, 0, 1)]
    capsys.readouterr()
    assert main(["metrics", str(project.root / "jobs"), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert [metrics[key] for key in ("total", "passed", "failed", "errored", "cancelled")] == [2, 1, 1, 0, 1]
    assert (metrics["total_cost_usd"], metrics["cost_is_partial"]) == (0.75, True)
