"""An xdist worker that dies costs no rollout: screen, JUnit, JSON and exit status tell one story."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import dataclass

import pytest
from project import Project

DIE = """
import os
import signal
from pathlib import Path


def die_once(name):
    try:
        Path(f"died-{name}").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
"""
#: Dies while the agent of `b` works, and between the score of `c` and its report.
ONCE = (
    DIE
    + """

def pytest_bf_rollout_phase(rollout, phase):
    if rollout.task.short_name == "b" and phase == "execute":
        die_once("b")


def pytest_bf_rollout_result(result):
    if "/c__" in str(result.rollout_dir):
        die_once("c")
"""
)
#: Dies when it has collected, before it is given anything to run.
BEFORE = """
import os
import signal
import time
from pathlib import Path

import pytest


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        Path(f"pid-{config.workerinput['workerid']}").write_text(str(os.getpid()))


collected = []


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node):
    collected.append(node.gateway.id)
    if len(collected) == 2:
        pid = int(Path(f"pid-{collected[0]}").read_text())
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
"""
#: Dies once while another worker, which replaces a dead one, still collects.
WHILE_COLLECTING = (
    DIE
    + """
import time

import pytest


def wait_for(name):
    deadline = time.monotonic() + 20
    while not Path(name).exists() and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    if getattr(session.config, "workerinput", {}).get("workerid") == "gw2":
        Path("collecting").touch()
        wait_for("died-c")
        time.sleep(0.5)


def pytest_bf_rollout_phase(rollout, phase):
    if rollout.task.short_name == "b" and phase == "execute":
        die_once("b")


def pytest_bf_rollout_result(result):
    if "/c__" in str(result.rollout_dir):
        wait_for("collecting")
        die_once("c")
"""
)
ALWAYS = """
import os
import signal


def pytest_bf_rollout_phase(rollout, phase):
    if rollout.task.short_name == "b" and phase == "execute":
        os.kill(os.getpid(), signal.SIGKILL)
"""


REPORTS = ("--bf-json=r.json", "--junitxml=r.xml")


@dataclass(frozen=True)
class Told:
    """What each report says of the rollouts, by task."""

    json: dict[str, str]
    junit: list[tuple[str, str]]

    @classmethod
    def by(cls, project: Project) -> Told:
        report = json.loads((project.root / "r.json").read_text())
        cases = ET.parse(project.root / "r.xml").iter("testcase")
        return cls(
            {entry["id"].split("/")[1]: entry["status"] for entry in report["rollouts"]},
            sorted((case.attrib["name"].split("/")[0], _outcome(case)) for case in cases),
        )


def _outcome(case: ET.Element) -> str:
    words = [each for each in ("error", "failure", "skipped") if case.find(each) is not None]
    assert len(words) < 2
    return words[0] if words else "passed"


def run(project: Project, *args: str) -> pytest.RunResult:
    for name in "abcd":
        project.task(f"tasks/{name}")
    return project.run("tasks", *REPORTS, *args)


@pytest.mark.parametrize("dist", ["load", "worksteal", "loadfile"])
def test_rollouts_of_dead_workers_run_again_unless_they_have_their_score(project: Project, dist: str) -> None:
    project.write({"conftest.py": ONCE})
    done = run(project, "-n", "2", f"--dist={dist}")
    assert (project.root / "died-b").exists()
    assert (project.root / "died-c").exists()
    done.assert_outcomes(passed=4)
    assert done.ret == 0
    told = Told.by(project)
    assert told.json == dict.fromkeys("abcd", "passed")
    assert told.junit == [(name, "passed") for name in "abcd"]
    names = [directory.name[0] for directory in project.rollout_dirs()]
    assert names == ["a", "b", "b", "c", "d"]  # b's first attempt has no result, c's only one was reported later
    done.stdout.re_match_lines([r"benchflow: tasks/b/task.toml::oracle was lost with worker gw\d+ and runs again"])
    events = [json.loads(line) for line in next(project.root.glob("jobs/*/ledger.jsonl")).read_text().splitlines()]
    ends = [event["key"].split("/")[1] for event in events if event["kind"] == "end"]
    assert sorted(ends) == ["a", "b", "c", "d"]
    retries = [event for event in events if event["kind"] == "retry"]
    assert [event["key"] for event in retries] == ["tasks/b/task.toml::oracle"]
    assert retries[0]["message"].endswith("died")


@pytest.mark.parametrize("dist", ["loadscope", "loadgroup"])
def test_what_a_dead_worker_had_done_holds_up_nobody(project: Project, dist: str) -> None:
    project.write({"conftest.py": ONCE})
    for name in "efg":
        project.task(f"tasks/{name}")
    done = run(project, "-n", "2", f"--dist={dist}")
    done.assert_outcomes(passed=7)
    assert done.ret == 0
    assert Told.by(project).junit == [(name, "passed") for name in "abcdefg"]


def test_a_worker_that_still_collects_loses_nothing_it_is_given(project: Project) -> None:
    project.write({"conftest.py": WHILE_COLLECTING})
    done = run(project, "-n", "2", "--dist=loadfile")
    done.assert_outcomes(passed=4)
    assert done.ret == 0


@pytest.mark.parametrize("how", [["--bf-concurrency=2"], ["--dist=load"]], ids=["window", "load"])
def test_a_worker_that_dies_before_it_is_given_anything_is_replaced(project: Project, how: list[str]) -> None:
    project.write({"conftest.py": BEFORE})
    done = run(project, "-n", "2", *how)
    done.assert_outcomes(passed=4)
    assert done.ret == 0
    assert Told.by(project).junit == [(name, "passed") for name in "abcd"]


def test_with_each_the_successor_runs_what_is_left(project: Project) -> None:
    project.write({"conftest.py": ONCE})
    done = run(project, "--tx=popen", "--dist=each")
    done.assert_outcomes(passed=4)
    assert done.ret == 0
    assert Told.by(project).json == dict.fromkeys("abcd", "passed")


def test_a_rollout_that_kills_every_worker_is_an_error(project: Project) -> None:
    project.write({"conftest.py": ALWAYS})
    done = run(project, "-n", "2")
    done.assert_outcomes(passed=3, errors=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    told = Told.by(project)
    assert told.json == {"a": "passed", "b": "error", "c": "passed", "d": "passed"}
    assert told.junit == [("a", "passed"), ("b", "error"), ("c", "passed"), ("d", "passed")]


def test_what_never_ran_is_named_and_counted_everywhere(project: Project) -> None:
    project.write({"conftest.py": ALWAYS})
    done = run(project, "-n", "1", "--max-worker-restart=0", "--bf-retries=0")
    assert done.ret == pytest.ExitCode.INTERNAL_ERROR
    told = Told.by(project)
    assert told.json == {"a": "passed", "b": "error", "c": "error", "d": "error"}
    assert told.junit == [("a", "passed"), ("b", "error"), ("c", "error"), ("d", "error")]
    done.stdout.fnmatch_lines(
        [
            "never ran: no worker lived to run it",
            "2 rollouts never reported, for example tasks/c/task.toml::oracle",
            "ERROR tasks/c/task.toml::oracle - never ran: no worker lived to run it",
            "ERROR tasks/d/task.toml::oracle - never ran: no worker lived to run it",
        ]
    )


@pytest.mark.parametrize(
    ("solve", "outcome", "status"),
    [("echo done > /app/done.txt", "passed", pytest.ExitCode.OK), ("true", "failed", pytest.ExitCode.TESTS_FAILED)],
)
def test_a_score_that_its_worker_did_not_live_to_report_ends_the_run_like_any_other(
    project: Project, solve: str, outcome: str, status: pytest.ExitCode
) -> None:
    project.task("tasks/c", solve=solve)
    project.write({"conftest.py": ONCE})
    done = project.run("tasks", *REPORTS, "-n", "1", "--max-worker-restart=0")
    assert done.ret == status
    told = Told.by(project)
    assert (told.json, told.junit) == ({"c": outcome}, [("c", outcome.replace("failed", "failure"))])
    assert "never" not in done.stdout.str()


def test_what_began_and_nobody_could_run_again_is_told_apart(project: Project) -> None:
    project.task("tasks/b")
    project.write({"conftest.py": ALWAYS})
    done = project.run("tasks", *REPORTS, "-n", "1", "--max-worker-restart=0")
    assert done.ret == pytest.ExitCode.INTERNAL_ERROR
    assert Told.by(project).junit == [("b", "error")]
    done.stdout.fnmatch_lines("ERROR tasks/b/task.toml::oracle - its worker died, and none lived to run it again")
