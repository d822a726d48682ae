"""Jobs under pytest: continued after a stop, retried, counted once, and resolved on pytest's own thread."""

from __future__ import annotations

import json
import re

import pytest
from project import Project

from pytest_benchflow.cli.main import main
from pytest_benchflow.jobs import Job, read_results

FLAKY = """
import os
import threading

import pytest

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.local import LocalBackend


class Flaky(LocalBackend):
    def create(self, spec):
        sandbox = super().create(spec)
        start = sandbox.start

        async def fail_at_first():
            if not os.path.exists("started-once"):
                open("started-once", "x").close()
                raise SandboxError("no space left")
            await start()

        sandbox.start = fail_at_first
        return sandbox


def pytest_bf_register_sandboxes(registry):
    registry.register("flaky", Flaky)
"""


@pytest.fixture
def three(project: Project) -> Project:
    """One task that passes, one that fails, and one whose verifier says nothing."""
    project.task("tasks/good")
    project.task("tasks/low", test="echo 0.25 > /logs/verifier/reward.txt")
    project.task("tasks/mute", test="true")
    return project


def table(lines: list[str]) -> list[str]:
    start = next(number for number, line in enumerate(lines) if line.startswith("agent "))
    return lines[start : start + 2]


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["engine", "xdist"])
def test_a_job_is_continued_where_it_has_no_scores(three: Project, workers: tuple[str, ...]) -> None:
    three.run("tasks", "--bf-job-name=mine", *workers).assert_outcomes(passed=1, failed=1, errors=1)
    three.task("tasks/new")
    again = three.run("tasks", "--bf-resume", *workers)
    again.assert_outcomes(passed=2, failed=1, errors=1)
    again.stdout.fnmatch_lines(["note: 2 of 4 scores are of an earlier run of this job", "results: jobs/mine"])
    names = sorted(path.name.partition("__")[0] for path in three.root.glob("jobs/mine/*__*"))
    assert names == ["good", "low", "mute", "mute", "new"]
    events = map(json.loads, (three.root / "jobs/mine/ledger.jsonl").read_text().splitlines())
    assert sorted(event["task"] for event in events if event.get("reused")) == ["good", "low"]  # each is read once


def test_what_would_blend_two_experiments_is_refused(three: Project) -> None:
    three.run("tasks/good", "--bf-job-name=mine").assert_outcomes(passed=1)
    other = three.run("tasks/good", "--bf-resume", "--bf-agent=nop")
    assert other.ret == pytest.ExitCode.USAGE_ERROR
    other.stderr.fnmatch_lines(["*jobs/mine has results of oracle; choose another job name*"])
    settings = three.run("tasks/good", "--bf-resume", "--bf-timeout-multiplier=2", "--bf-sandbox-user=none")
    assert settings.ret == pytest.ExitCode.USAGE_ERROR
    settings.stderr.fnmatch_lines(
        [
            '*jobs/mine was begun with other settings: timeout_multiplier was 1.0 and is 2.0, sandbox_user was "agent" '
            "and is null; choose another job name, or keep its scores all the same with --bf-resume-anyway"
        ]
    )
    for harmless in ("--bf-keep-sandbox=failed", "--bf-retries=3", "--bf-trials=1"):
        three.run("tasks/good", "--bf-resume", harmless).assert_outcomes(passed=1)
    three.write({"tasks/good/instruction.md": "Something else.\n"})
    changed = three.run("tasks/good", "--bf-resume")
    changed.assert_outcomes(errors=1)
    changed.stdout.fnmatch_lines(["*jobs/mine has a result of another version of the task *good*"])
    assert len(three.rollout_dirs()) == 1


def test_what_a_conftest_sets_for_one_task_is_compared_too(three: Project) -> None:
    three.run("tasks", "--bf-job-name=mine", "-k", "good or low").assert_outcomes(passed=1, failed=1)
    hook = """
        from dataclasses import replace


        def pytest_bf_modify_config(config, task):
            return replace(config, agent_idle_timeout=77) if task.short_name == "low" else None
    """
    three.write({"conftest.py": hook})
    changed = three.run("tasks", "--bf-resume", "-k", "good or low")
    changed.assert_outcomes(passed=1, errors=1)
    changed.stdout.fnmatch_lines(["*a result of *low with other settings: agent_idle_timeout was 600.0 and is 77;*"])


def test_scores_of_something_else_are_kept_if_asked_for_and_say_so(three: Project) -> None:
    three.run("tasks/good", "--bf-job-name=mine").assert_outcomes(passed=1)
    three.write({"tasks/good/instruction.md": "Something else.\n"})
    kept = three.run("tasks/good", "--bf-resume-anyway", "--bf-timeout-multiplier=2", "--bf-agent=oracle,nop")
    kept.assert_outcomes(passed=1, failed=1)
    kept.stdout.fnmatch_lines(
        [
            "note: continues mine, which has 1 score; they are kept",
            "note: 1 of 2 scores are of an earlier run of this job",
            "note: kept from an earlier run: a result of another version of the task *good",
        ]
    )
    assert len(three.rollout_dirs()) == 2


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["engine", "xdist"])
def test_a_job_is_named_behind_the_equals_sign_and_paths_stay_paths(three: Project, workers: tuple[str, ...]) -> None:
    for name in ("old", "new"):
        three.run("tasks/good", f"--bf-job-name={name}").assert_outcomes(passed=1)
    for option, job in (("--bf-resume", "new"), ("--bf-resume=old", "old"), ("--bf-resume=jobs/old/", "old")):
        done = three.run(option, "tasks/good", *workers)
        done.assert_outcomes(passed=1)
        done.stdout.fnmatch_lines([f"note: continues {job}, which has 1 score; they are kept", f"results: jobs/{job}"])
    assert len(three.rollout_dirs()) == 2
    for words, message in (
        (["--bf-resume=odl"], "there is no job odl in *jobs; did you mean old?"),
        (["--bf-resume=old", "--bf-job-name=new"], "--bf-resume and --bf-job-name name different jobs; name it once"),
    ):
        refused = three.run("tasks/good", *words)
        assert refused.ret == pytest.ExitCode.USAGE_ERROR
        refused.stderr.fnmatch_lines([f"*{message}"])


def test_results_that_an_agent_left_among_its_artifacts_are_nobodys(three: Project) -> None:
    three.run("tasks", "--bf-job-name=mine", "-k", "good or low").assert_outcomes(passed=1, failed=1)
    (low,) = three.root.glob("jobs/mine/low__*")
    (good,) = three.root.glob("jobs/mine/good__*/result.json")
    (low / "artifacts").mkdir(exist_ok=True)
    (low / "artifacts/result.json").write_text(good.read_text().replace("good", "low"))
    assert [result.reward for result in read_results(three.root / "jobs").results] == [1.0, 0.25]


def test_a_job_that_is_running_is_not_continued(three: Project) -> None:
    three.run("tasks/good", "--bf-job-name=mine").assert_outcomes(passed=1)
    running = Job(three.root / "jobs/mine")
    running.hold()
    refused = three.run("tasks/good", "--bf-resume")
    running.close()
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*jobs/mine is in use by another run; wait for it*"])
    three.run("tasks/good", "--bf-resume").assert_outcomes(passed=1)


def test_there_must_be_a_job_to_continue_unless_it_is_named(three: Project) -> None:
    nothing = three.run("tasks/good", "--bf-resume")
    assert nothing.ret == pytest.ExitCode.USAGE_ERROR
    nothing.stderr.fnmatch_lines(["*there is no job in *jobs to resume; run it without resume first*"])
    three.run("tasks/good", "--bf-resume", "--bf-job-name=first").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("args", "outcome", "attempts"),
    [
        (["--bf-sandbox=flaky"], {"passed": 1}, 2),
        (["--bf-sandbox=flaky", "--bf-retries=0"], {"errors": 1}, 1),
        (["--bf-config=job.yaml"], {"errors": 1}, 1),
        (["--bf-config=job.yaml", "--bf-retries=1"], {"passed": 1}, 2),
    ],
)
def test_what_the_harness_could_not_do_is_tried_again(
    project: Project, args: list[str], outcome: dict[str, int], attempts: int
) -> None:
    project.task("tasks/one")
    job = "agent: oracle\nsandbox: flaky\ntasks: tasks\nretry: {max_retries: 0, min_wait_sec: 0}\n"
    project.write({"conftest.py": FLAKY, "job.yaml": job})
    done = project.run(*args, *([] if "job" in args[0] else ["tasks"]))
    done.assert_outcomes(**outcome)
    assert len(project.rollout_dirs()) == attempts
    if attempts > 1:
        done.stdout.fnmatch_lines(["note: attempt 1: sandbox error in start: no space left"])


def test_the_table_and_bf_metrics_count_the_same(three: Project, capsys: pytest.CaptureFixture[str]) -> None:
    done = three.run("tasks", "--bf-job-name=mine", "--bf-trials=2")
    assert main(["metrics", str(three.root / "jobs/mine")]) == 0
    assert table(capsys.readouterr().out.splitlines()) == table(done.outlines)


def test_hooks_and_task_files_are_for_pytests_own_thread(project: Project) -> None:
    for number in range(6):
        project.task(f"tasks/{number}")
    project.write(
        {
            "conftest.py": """
            import threading

            import pytest_benchflow.tasks.load as load

            FOREIGN = []


            def note(what):
                if threading.current_thread() is not threading.main_thread():
                    FOREIGN.append(what)


            read = load.load_task


            def load_task(*args, **kwargs):
                note("load_task")
                return read(*args, **kwargs)


            load.load_task = load_task


            def pytest_bf_modify_task(task):
                note("task")


            def pytest_bf_modify_config(config, task):
                note("config")


            def pytest_bf_rollout_result(result):
                note("result")


            def pytest_bf_rollout_phase(rollout, phase):
                if threading.current_thread().name == "benchflow-engine":
                    FOREIGN.append(phase)


            def pytest_sessionfinish():
                print("foreign:", FOREIGN)
            """
        }
    )
    done = project.run("tasks", "--bf-concurrency=1", "-s")
    done.assert_outcomes(passed=6)
    done.stdout.fnmatch_lines(["*foreign: []"])


def test_a_continued_job_reads_a_task_that_is_done_when_it_comes_to_it(project: Project) -> None:
    for number in range(12):
        project.task(f"tasks/{number:02}")
    project.run("tasks", "--bf-job-name=mine").assert_outcomes(passed=12)
    project.write(
        {
            "conftest.py": """
            CALLS = []


            def pytest_bf_modify_config(config, task):
                CALLS.append(task.name)


            def pytest_bf_rollout_result(result):
                print(f"at {result.task_name}: {len(CALLS)} read")
            """
        }
    )
    done = project.run("tasks", "--bf-resume", "--bf-concurrency=1", "-s")
    done.assert_outcomes(passed=12)
    done.stdout.fnmatch_lines(["*at 00: 1 read*", "*at 05: 6 read*", "*at 11: 12 read*"])


COUNT_SETUPS = """
import atexit

from _pytest.runner import SetupState

setups = []
setup = SetupState.setup
SetupState.setup = lambda self, item: (setups.append(item.name), setup(self, item))
atexit.register(lambda: open("setups.txt", "w").write(" ".join(setups)))
"""


@pytest.mark.parametrize("words", [("-v", "-rA"), ("-q", "--tb=line"), ("-vv", "-x")], ids=" ".join)
def test_scores_are_told_at_once_and_as_if_they_had_been_run(three: Project, words: tuple[str, ...]) -> None:
    three.run("tasks/good", "tasks/low", "--bf-job-name=mine").assert_outcomes(passed=1, failed=1)
    told = {}
    for name, hook in (("run", "def pytest_runtest_setup(item):\n    pass\n"), ("told", "")):
        three.write({"conftest.py": COUNT_SETUPS + hook})
        result = three.run("tasks/low", "tasks/good", "--bf-resume", "--junitxml=junit.xml", *words)
        lines = [re.sub(r"\b[\d.]+s\b", "", line) for line in result.outlines if "at a time" not in line]
        junit = re.sub(r' (?:time|timestamp)="[^"]*"', "", (three.root / "junit.xml").read_text())
        failed = (three.root / ".pytest_cache/v/cache/lastfailed").read_text()
        assert len((three.root / "setups.txt").read_text().split()) == (
            0 if name == "told" else 1 + ("-x" not in words)
        )
        told[name] = result.ret, lines, junit, failed
    assert told["told"] == told["run"]


@pytest.mark.parametrize(
    ("conftest", "words"),
    [
        ("import pytest\n@pytest.fixture(autouse=True, scope='session')\ndef mine():\n    pass\n", ()),
        ("import pytest\n@pytest.fixture\ndef bf_config(bf_config):\n    return bf_config\n", ()),
        ("def pytest_bf_rollout_result(result):\n    pass\n", ()),
        ("def pytest_collection_modifyitems(items):\n    items[0].add_marker('xfail')\n", ()),
        ("", ("--setup-show",)),
    ],
)
def test_an_item_runs_where_somebody_would_notice_that_it_did_not(
    three: Project, conftest: str, words: tuple[str, ...]
) -> None:
    three.run("tasks/good", "--bf-job-name=mine").assert_outcomes(passed=1)
    three.write({"conftest.py": COUNT_SETUPS + conftest})
    assert three.run("tasks/good", "--bf-resume", *words).ret == 0
    assert (three.root / "setups.txt").read_text() == "oracle"


def test_items_that_run_find_what_is_set_up_as_pytest_leaves_it(three: Project) -> None:
    three.run("tasks/good", "--bf-job-name=mine", "--bf-agent=oracle,nop").assert_outcomes(passed=1, failed=1)
    fixture = """
        import pytest


        @pytest.fixture(scope="package", autouse=True)
        def package():
            yield
            print("package is over")


        def test_before():
            pass
    """
    three.write({"conftest.py": COUNT_SETUPS, "a/__init__.py": "", "a/test_a.py": fixture, "z/test_z.py": fixture})
    done = three.run("a", "tasks/good", "z", "tasks/low", "--bf-resume", "--bf-agent=oracle,nop", "-rP")
    done.assert_outcomes(passed=3, failed=3)
    setups = (three.root / "setups.txt").read_text().split()
    assert setups.count("test_before") == 2
    assert setups.count("oracle") + setups.count("nop") < 4
    done.stdout.no_fnmatch_line("*previous item was not torn down*")
