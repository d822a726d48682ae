"""Signals end a run in time, once gently and twice at once, whatever its rollouts do meanwhile."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from bots import BOTS
from project import Project, wait_for

#: A sandbox that takes long to stop: as one elsewhere may.
SLOW = """

import asyncio
from pytest_benchflow.sandboxes.local.sandbox import LocalSandbox

stop = LocalSandbox.stop


async def slow_stop(self, **words):
    await stop(self, **words)
    open("stopping", "w").close()
    await asyncio.sleep(15)


LocalSandbox.stop = slow_stop
"""


def test_sigterm_ends_workers_and_their_rollouts_within_seconds(project: Project) -> None:
    for number in range(4):
        project.task(f"tasks/t{number}", instruction="COST: 0.5\nRUN: sleep 1000")
    project.write({"conftest.py": BOTS})
    words = ["--bf-agent=bot", "-n", "2", "--bf-concurrency=2", "--bf-json=r.json"]
    runner = project.start("tasks", *words)
    wait_for(lambda: len([*project.root.glob("jobs/*/*/prompts.json")]) == 4 or runner.poll() is not None, "the start")
    os.kill(runner.pid, signal.SIGTERM)
    began = time.monotonic()
    assert runner.wait(60) == pytest.ExitCode.INTERRUPTED, (project.root / "pytest.log").read_text()
    print(f"ended after {time.monotonic() - began:.1f} s")
    results = project.results().values()
    assert [result["cancelled"] for result in results] == [True] * 4
    log = (project.root / "pytest.log").read_text()
    assert "crashed" not in log
    assert "cancelled" in log


@pytest.mark.parametrize(
    ("signals", "workers"),
    [([signal.SIGTERM], ()), ([signal.SIGTERM], ("-n1",)), ([signal.SIGINT, signal.SIGINT], ("-n1",))],
    ids=["terminated", "terminated-worker", "twice-worker"],
)
def test_a_clean_up_that_takes_long_holds_up_nobody(
    project: Project, signals: list[signal.Signals], workers: tuple[str, ...]
) -> None:
    project.task("tasks/a", instruction="RUN: sleep 1000")
    project.write({"conftest.py": BOTS + SLOW})
    runner = project.start("tasks", "--bf-agent=bot", *workers)
    try:
        wait_for(lambda: [*project.root.glob("jobs/*/*/prompts.json")] or runner.poll() is not None, "the start")
        began = time.monotonic()
        for number in signals:
            os.kill(runner.pid, number)
            wait_for(lambda: (project.root / "stopping").exists() or runner.poll() is not None, "the clean-up")
        assert runner.wait(60) in (pytest.ExitCode.INTERRUPTED, -signal.SIGINT)
        assert time.monotonic() - began < 12  # five, were the machine idle
    finally:
        runner.kill()
        runner.wait()


def test_a_second_interrupt_waits_for_nothing(project: Project) -> None:
    project.task("tasks/a", instruction="RUN: sleep 1000")
    project.write({"conftest.py": BOTS + SLOW})
    runner = project.start("tasks", "--bf-agent=bot")
    try:
        wait_for(lambda: [*project.root.glob("jobs/*/*/prompts.json")] or runner.poll() is not None, "the start")
        os.kill(runner.pid, signal.SIGINT)
        wait_for(lambda: (project.root / "stopping").exists() or runner.poll() is not None, "the clean-up")
        assert runner.poll() is None, "it did not wait for its sandbox"
        began = time.monotonic()
        os.kill(runner.pid, signal.SIGINT)
        assert runner.wait(60) == pytest.ExitCode.INTERRUPTED, (project.root / "pytest.log").read_text()
        print(f"ended after {time.monotonic() - began:.1f} s")
    finally:
        runner.kill()
        runner.wait()


FIRST = """
def pytest_runtest_logreport(report):
    if report.when == "teardown":
        raise KeyboardInterrupt
"""
#: A second interrupt, while pytest is busy with the traceback of the first.
IN_TRACEBACK = """
def pytest_keyboard_interrupt():
    raise KeyboardInterrupt
"""
#: A second interrupt, while the run waits for its workers.
IN_WAIT = """
from pytest_benchflow.plugin import lost_workers


def wait(*words):
    raise KeyboardInterrupt


lost_workers.wait_for_workers = wait
"""


@pytest.mark.parametrize(
    ("second", "workers"),
    [(IN_TRACEBACK, ()), (IN_TRACEBACK, ("-n", "1")), (IN_WAIT, ("-n", "1"))],
    ids=["traceback", "traceback-worker", "wait-worker"],
)
def test_a_second_interrupt_right_after_the_first_changes_no_story(
    project: Project, second: str, workers: tuple[str, ...]
) -> None:
    for name in "abc":
        project.task(f"tasks/{name}")
    project.write({"conftest.py": FIRST + second})
    run = project.run("tasks", "--bf-concurrency=1", "--bf-json=r.json", *workers, cold=True)
    assert run.ret in (pytest.ExitCode.INTERRUPTED, -signal.SIGINT)
    report = json.loads((project.root / "r.json").read_text())
    assert report["exit_status"] == pytest.ExitCode.INTERRUPTED
    assert len(report["missing"]) >= 2
    assert "never ran" not in run.stdout.str()
    assert "results: jobs/" in run.stdout.str()
