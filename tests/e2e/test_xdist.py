"""`-n 2`: the same results and the same report as in one process, and nothing is printed twice or lost."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from project import Project, wait_for

VOLATILE = {"timing", "reward_events", "started_at", "finished_at", "rollout_dir", "rollout_name"}


@dataclass(frozen=True)
class Pair:
    """The same tasks run in one process and by two workers."""

    project: Project
    one: pytest.RunResult
    two: pytest.RunResult

    def report(self, name: str) -> dict[str, object]:
        return json.loads((self.project.root / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def pair(new_project: Callable[..., Project]) -> Pair:
    project = new_project()
    for name in ("a", "b", "c"):
        project.task(f"tasks/{name}")
    project.task("tasks/fails", solve="exit 0")
    project.task("tasks/broken", test="exit 0")
    project.write({"test_plain.py": "def test_plain(): pass\n"})
    one = project.run("--bf-json=one.json", "--bf-job-name=one")
    learned = {"tasks/a": 1.0, "tasks/b": 1.0, "tasks/broken": 1.0, "tasks/c": 60.0, "tasks/fails": 1.0}
    durations = project.root / ".pytest_cache/d/benchflow/durations.json"
    durations.write_text(json.dumps({"version": 1, "seconds": learned}))
    two = project.run("--bf-json=below/two.json", "--bf-job-name=two", "-n", "2")
    (project.root / "below/two.json").rename(project.root / "two.json")  # a directory that was not there before
    return Pair(project, one, two)


def test_the_outcomes_are_the_same(pair: Pair) -> None:
    pair.one.assert_outcomes(passed=4, failed=1, errors=1)
    pair.two.assert_outcomes(passed=4, failed=1, errors=1)
    assert pair.one.ret == pair.two.ret == pytest.ExitCode.TESTS_FAILED


def test_the_reports_are_the_same(pair: Pair) -> None:
    def stable(name: str) -> dict[str, object]:
        report = pair.report(name)
        return {
            entry["id"]: (entry["status"], {k: v for k, v in entry["result"].items() if k not in VOLATILE})
            for entry in report["rollouts"]
        }

    assert stable("one") == stable("two")
    assert [entry["id"] for entry in pair.report("one")["rollouts"]] == sorted(stable("one"))
    assert [entry["id"] for entry in pair.report("two")["rollouts"]] == sorted(stable("two"))


def test_the_job_directory_is_shared_by_the_workers(pair: Pair) -> None:
    assert {path.name for path in pair.project.root.glob("jobs/*")} == {"one", "two"}
    names = {job: {path.name for path in pair.project.rollout_dirs(job)} for job in ("one", "two")}
    assert len(names["two"]) == 5
    assert names["one"] == names["two"]


def test_what_took_longest_starts_first(pair: Pair) -> None:
    events = map(json.loads, (pair.project.root / "jobs/two/ledger.jsonl").read_text().splitlines())
    started = [event["task"] for event in events if event["kind"] == "start"]
    assert "c" in started[:2]


def test_the_header_is_printed_once_with_the_real_concurrency(pair: Pair) -> None:
    (line,) = [line for line in pair.two.outlines if line.startswith("benchflow: ")]
    assert line.startswith("benchflow: 5 rollouts · agent oracle · sandbox local (")
    assert " 2 at a time " in line
    assert line.endswith("results in jobs/two")
    (line,) = [line for line in pair.one.outlines if line.startswith("benchflow: ")]
    assert line.endswith("results in jobs/one")


def test_the_summary_is_printed_once(pair: Pair) -> None:
    for run in (pair.one, pair.two):
        assert len([line for line in run.outlines if line.startswith("oracle ")]) == 1
        assert len([line for line in run.outlines if line.startswith("results: ")]) == 1


def unsendable(project: Project, phase: str, item: str) -> Project:
    """Give an item a property that xdist cannot carry, which costs its report without a word."""
    project.task("tasks/a")
    project.task("tasks/b")
    return project.write(
        {
            "conftest.py": f"""
            from pathlib import Path

            def pytest_runtest_{phase}(item):
                if "tasks/{item}/" in item.nodeid:
                    item.user_properties.append(("where", Path("here")))
            """
        }
    )


def test_a_property_that_cannot_travel_never_ends_green(project: Project) -> None:
    assert unsendable(project, "setup", "a").run("tasks", "-n", "2").ret not in (0, 5)


def test_a_rollout_that_never_reported_is_named(project: Project) -> None:
    done = unsendable(project, "teardown", "b").run("tasks", "-n", "1")
    assert done.ret == pytest.ExitCode.INTERNAL_ERROR
    done.stdout.re_match_lines([r"1 rollouts? never reported, for example tasks/b/task\.toml::oracle"])


def test_a_worker_that_dies_leaves_no_process_behind(project: Project) -> None:
    seconds = 10**6 + uuid.uuid4().int % 10**9
    project.task("tasks/a", dockerfile="FROM debian\nWORKDIR /app\n", solve=f"sleep {seconds} & sleep {seconds}")
    project.write(
        {
            "conftest.py": f"""
            import os, pathlib, threading, time

            def asleep():
                return sum(b"{seconds}" in path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"))

            def die_when_asleep():
                while asleep() < 2:
                    time.sleep(0.02)
                os._exit(1)

            def pytest_bf_rollout_phase(rollout, phase):
                if phase == "execute":
                    threading.Thread(target=die_when_asleep).start()
            """
        }
    )
    assert project.run("tasks", "-n", "1", "--max-worker-restart=0").ret not in (0, 5)
    wait_for(lambda: not running(seconds), "the end of the agent", 30)


def running(seconds: int) -> list[str]:
    """Return the processes that sleep for just this long."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if command == f"sleep\0{seconds}\0".encode():
            found.append(path.parent.name)
    return found
