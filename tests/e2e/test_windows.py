"""`-n 2 --bf-concurrency N`: the engines of workers are kept full, what is ready reports first, all can be stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bots import BOTS
from project import Project

MEETING = """
import os
import time
from pathlib import Path

PLACE = Path("met")


def pytest_bf_rollout_phase(rollout, phase):
    if phase == "execute":
        PLACE.mkdir(exist_ok=True)
        (PLACE / f"{rollout.task.short_name}-{os.getpid()}").touch()
"""


def test_every_worker_has_as_many_in_flight_as_it_may(project: Project) -> None:
    for number in range(9):
        project.task(f"tasks/t{number}", instruction="RUN: sleep 1.5\nRUN: echo done > done.txt")
    project.write({"conftest.py": BOTS + MEETING})
    done = project.run("tasks", "--bf-agent=bot", "-n", "2", "--bf-concurrency=4", "-v", "--bf-json=r.json")
    done.assert_outcomes(passed=9)
    (line,) = [line for line in done.outlines if line.startswith("benchflow: ")]
    assert " 8 at a time " in line
    events = [json.loads(line) for line in next(project.root.glob("jobs/*/ledger.jsonl")).read_text().splitlines()]
    in_flight, most = 0, 0
    for event in events:
        in_flight += {"start": 1, "end": -1}.get(event["kind"], 0)
        most = max(most, in_flight)
    assert 4 < most <= 8
    workers = {path.name.rpartition("-")[2] for path in (project.root / "met").iterdir()}
    assert len(workers) == 2


def test_what_is_ready_reports_before_a_slow_one(project: Project) -> None:
    project.task("tasks/a-slow", instruction="RUN: sleep 5\nRUN: echo done > done.txt")
    for name in "bcde":
        project.task(f"tasks/{name}", instruction="RUN: echo done > done.txt")
    project.write({"conftest.py": BOTS})
    done = project.run("tasks", "--bf-agent=bot", "-n", "1", "--bf-concurrency=2", "-v")
    done.assert_outcomes(passed=5)
    reported = [line.split("tasks/")[1].split("/")[0] for line in done.outlines if " PASSED " in line]
    assert reported[-1] == "a-slow"
    assert sorted(reported) == ["a-slow", "b", "c", "d", "e"]


def test_the_first_failure_cancels_what_all_workers_run(project: Project) -> None:
    project.task("tasks/a-fails", instruction="RUN: sleep 2\nCOST: 0.25")
    for name in "bcdefgh":
        project.task(f"tasks/{name}", instruction="COST: 0.5\nRUN: sleep 1000")
    project.write({"conftest.py": BOTS})
    done = project.run("tasks", "--bf-agent=bot", "-n", "2", "--bf-concurrency=2", "-x", "--bf-json=r.json")
    assert done.ret == pytest.ExitCode.INTERRUPTED
    report = json.loads((project.root / "r.json").read_text())
    statuses = {entry["id"].split("/")[1]: entry["status"] for entry in report["rollouts"]}
    assert statuses.pop("a-fails") == "failed"
    assert 2 <= len(statuses) <= 4
    assert set(statuses.values()) == {"cancelled"}
    assert report["summary"][0]["cancelled"] == len(statuses)
    done.stdout.fnmatch_lines(["agent * cancelled * cost *"])


def test_a_limit_per_model_holds_for_all_workers_together(project: Project) -> None:
    for number in range(5):
        project.task(f"tasks/t{number}", instruction="RUN: sleep 0.5\nRUN: echo done > done.txt")
    project.write({"conftest.py": BOTS})
    words = ["--bf-agent=bot", "--bf-model=m", "--bf-max-per-model=2"]
    done = project.run("tasks", *words, "-n", "2", "--bf-concurrency=3")
    done.assert_outcomes(passed=5)
    assert most_in_flight(project.root) == 2


def most_in_flight(root: Path) -> int:
    """Return how many rollouts ran at the same time, by what their results say."""
    results = [json.loads(path.read_text()) for path in root.glob("jobs/*/*/result.json")]
    moments = sorted(
        [(each["started_at"], 1) for each in results] + [(each["finished_at"], -1) for each in results],
        key=lambda moment: moment,
    )
    running = most = 0
    for _, change in moments:
        running += change
        most = max(most, running)
    return most
