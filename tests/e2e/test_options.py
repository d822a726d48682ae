"""What the options of the command line do to a whole run."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from project import Project, write_task

HALF = "echo 0.5 > /logs/verifier/reward.txt"


@pytest.fixture(scope="module")
def three(new_project: Callable[..., Project]) -> Project:
    """Make three tasks: one sound, one that gives everybody half a reward, one that even nop passes."""
    project = new_project()
    project.task("tasks/sound")
    project.task("tasks/half", test=HALF)
    project.task("tasks/gift", test="echo 1 > /logs/verifier/reward.txt")
    return project


def test_a_dry_run_lists_the_cells_and_starts_nothing(project: Project) -> None:
    project.task("tasks/sound")
    project.task("tasks/unsolved", solve=None)
    project.task("tasks/later", toml='[benchflow]\nskip = "not yet"\n')
    project.task("tasks/gpus", toml="[environment]\ngpus = 1\n")
    project.task("tasks/token", toml='[verifier.environment.env]\nT = "${BENCHFLOW_NOT_SET}"\n')
    (project.task("tasks/linked") / "tests/link").symlink_to("/etc/passwd")
    done = project.run("tasks", "--bf-dry-run", "--bf-agent=oracle,nop", "--bf-json=r.json", "-n", "2")
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        [
            "tasks/gpus/task.toml::oracle  the local sandbox does not support ?environment? gpus; * (1: 2 rollouts)",
            "tasks/gpus/task.toml::nop  see (1)",
            "tasks/later/task.toml::oracle  will be skipped: not yet (2: 2 rollouts)",
            "tasks/linked/task.toml::oracle  *is a link to /etc/passwd, outside the task*",
            "tasks/sound/task.toml::oracle  ready",
            "tasks/sound/task.toml::nop  ready",
            "tasks/token/task.toml::oracle  *needs the environment variable BENCHFLOW_NOT_SET*",
            "tasks/unsolved/task.toml::oracle  will be skipped: no oracle solution*",
            "tasks/unsolved/task.toml::nop  ready",
            "12 rollouts on local, 3 of them ready, *none calls a model, so they cost nothing",
        ]
    )
    assert not (project.root / "jobs").exists()
    assert not (project.root / "r.json").exists()


def test_a_dry_run_asks_the_sandbox_about_every_environment_and_lists_what_is_not_broken(project: Project) -> None:
    project.task("tasks/broken", toml="[agent]\ntimeout_sec = 'x'\n")
    own = {"tests/Dockerfile": "FROM images.example/own:1\n"}
    project.task("tasks/checked", toml='[verifier]\nenvironment_mode = "separate"\n', files=own)
    for name in ("one", "other"):
        project.task(f"tasks/{name}", dockerfile="FROM images.example/own:1\n")
    project.task("tasks/copies", dockerfile="FROM scratch AS one\nCOPY gone /\nFROM scratch\nCOPY --from=one / /\n")
    project.task("tasks/sound")
    done = project.run("tasks", "--bf-dry-run", "--bf-sandbox=local")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(
        [
            "tasks/checked/task.toml::oracle  tests/Dockerfile:1: FROM images.example/own:1: nothing on this host*",
            "tasks/copies/task.toml::oracle  environment/Dockerfile:2: COPY gone: not found in *",
            "tasks/one/task.toml::oracle  environment/Dockerfile:1: FROM images.example/own:1: * (1: 2 rollouts)",
            "tasks/other/task.toml::oracle  see (1)",
            "tasks/sound/task.toml::oracle  ready",
            "5 rollouts on local, 1 of them ready*",
            "not listed: 1 that could not be collected, see the errors",
            "tasks/broken/task.toml:3: *timeout_sec is*",
        ]
    )


def test_a_dry_run_says_that_the_sandbox_cannot_run(project: Project) -> None:
    project.task("tasks/one")
    done = project.run("tasks", "--bf-dry-run", "--bf-sandbox=docker")
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        ["tasks/one/task.toml::oracle  ready", "nothing can run: *Docker*", "1 rollouts on docker*"]
    )


def test_shards_are_disjoint_even_and_together_everything(project: Project) -> None:
    for number in range(7):
        project.task(f"tasks/t{number}")
    project.write({"test_plain.py": "def test_plain(): pass\n"})
    everything = project.ids("tasks")
    plain = "test_plain.py::test_plain"
    shards = [project.ids(f"--bf-shard={index}/3") for index in (1, 2, 3)]
    assert all(plain in shard for shard in shards), "ordinary tests are in no shard, so they are in every run"
    shards = [[nodeid for nodeid in shard if nodeid != plain] for shard in shards]
    assert Counter(chain.from_iterable(shards)) == Counter(everything)
    assert sorted(len(shard) for shard in shards) == [2, 2, 3]
    assert [nodeid for nodeid in everything if nodeid in shards[0]] == shards[0]
    elsewhere = project.ids("tasks", "--bf-shard=2/3", "--rootdir=tasks")
    assert [f"tasks/{nodeid}" for nodeid in elsewhere] == shards[1]


def test_tasks_come_from_a_git_repository(project: Project, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    write_task(origin / "bench/one")
    write_task(origin / "bench/two")
    write_task(origin / "other/three")
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "tasks"],
    ):
        subprocess.run(["git", *command], cwd=origin, check=True)
    source = f"--bf-source=file://{origin}@main:bench"
    project.run(source, "-v").assert_outcomes(passed=2)
    origin.rename(tmp_path / "gone")
    workers = project.run(source, "-n", "2")
    workers.assert_outcomes(passed=2)
    workers.stdout.fnmatch_lines(["note: file://*@main:bench could not be refreshed (*); using the copy of *"])


def test_a_selftest_wants_nop_to_fail_and_oracle_to_pass(three: Project) -> None:
    done = three.run("tasks", "--bf-selftest", "-v")
    done.assert_outcomes(passed=4, failed=2)
    done.stdout.fnmatch_lines(
        [
            "tasks/gift/task.toml::nop FAILED*",
            "tasks/gift/task.toml::oracle PASSED*",
            "tasks/half/task.toml::nop PASSED*",
            "tasks/half/task.toml::oracle FAILED*",
            "tasks/sound/task.toml::nop PASSED*",
            "tasks/sound/task.toml::oracle PASSED*",
            "nop passed: the verifier gives 1.00 to an agent that did nothing*",
        ]
    )


def test_trials_have_directories_of_their_own_where_results_are_asked_to_go(three: Project) -> None:
    done = three.run("tasks/sound", "--bf-trials=3", "-v", "--bf-jobs-dir=out/here", "--bf-job-name=mine")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines([f"tasks/sound/task.toml::oracle/{trial} PASSED*" for trial in (1, 2, 3)])
    configs = [json.loads(path.read_text()) for path in three.root.glob("out/here/mine/sound__*/config.json")]
    assert sorted(config["trial"] for config in configs) == [1, 2, 3]


def test_a_marker_beats_the_command_line_which_beats_the_task(project: Project) -> None:
    project.task("tasks/marker", test=HALF, toml="[benchflow]\nthreshold = 0.9\n")
    project.task("tasks/task", test=HALF, toml="[benchflow]\nthreshold = 0.4\n")
    project.write(
        {
            "conftest.py": """
            import pytest

            def pytest_collection_modifyitems(items):
                for item in items:
                    if "tasks/marker/" in item.nodeid:
                        item.add_marker(pytest.mark.bf_threshold(0.5))
            """,
            "pytest.ini": "[pytest]\nbf_threshold = 0.6\n",
        }
    )
    project.run("tasks").assert_outcomes(passed=2)  # the task's own threshold beats that of the whole project
    project.run("tasks", "--bf-threshold=0.6", "-v").stdout.fnmatch_lines(
        ["tasks/marker/task.toml::oracle PASSED*", "tasks/task/task.toml::oracle FAILED*"]
    )


def test_a_marker_that_means_nothing_here_is_named(project: Project) -> None:
    project.task("tasks/one")
    project.task("tasks/two")
    project.write(
        {
            "conftest.py": """
            import pytest

            def pytest_collection_modifyitems(items):
                items[0].add_marker(pytest.mark.bf_threshold("high"))
                items[1].add_marker(pytest.mark.bf_trials(3))
            """
        }
    )
    done = project.run("tasks")
    done.assert_outcomes(errors=2)
    done.stdout.fnmatch_lines(["*tasks/one/task.toml::oracle: bf_threshold takes one number; write bf_threshold(0.8)*"])
    done.stdout.fnmatch_lines(["*tasks/two/task.toml::oracle: bf_trials comes too late for a task; set trials in *"])
    assert "pytest_benchflow/" not in done.stdout.str()


ASSERTS = """
import pytest

@pytest.mark.bf_task("tasks/low")
@pytest.mark.bf_threshold(0.5)
def test_something_else(bf_result):
    assert bf_result.n_tool_calls == 7

@pytest.mark.bf_task("tasks/low")
def test_the_reward(bf_result):
    assert bf_result.passed
"""


def test_report_only_forgives_low_rewards_and_nothing_else(project: Project) -> None:
    project.task("tasks/low", test=HALF)
    project.task("tasks/broken", test="exit 0")
    low = project.run("tasks/low", "--bf-report-only", "-rx", "--bf-json=r.json")
    assert low.ret == 0
    low.assert_outcomes(xfailed=1)
    low.stdout.fnmatch_lines(["*report only: reward 0.50 is below 1.00*"])
    assert json.loads((project.root / "r.json").read_text())["rollouts"][0]["status"] == "failed"
    both = project.run("tasks", "--bf-report-only", "-n", "2")
    both.assert_outcomes(xfailed=1, errors=1)
    assert both.ret == pytest.ExitCode.TESTS_FAILED
    project.write({"test_plain.py": "def test_it():\n    assert False\n", "test_rollout.py": ASSERTS})
    mixed = project.run("tasks/low", "test_plain.py", "test_rollout.py", "--bf-report-only", "--bf-gate=failed <= 9")
    mixed.assert_outcomes(xfailed=2, failed=2)
    assert mixed.ret == pytest.ExitCode.TESTS_FAILED
    assert "gates: passed, but 2 failures are not of rollouts" in mixed.outlines


def test_quarantined_tasks_run_and_report_but_never_block(project: Project) -> None:
    project.task("tasks/by-file", test=HALF, toml="[benchflow]\nquarantine = true\n")
    project.task("tasks/by-conftest", test="exit 0")
    project.task("tasks/passes", toml="[benchflow]\nquarantine = true\n")
    project.task("tasks/never-started", toml="[benchflow]\nquarantine = true\n")
    project.write(
        {
            "conftest.py": """
            import pytest

            def pytest_collection_modifyitems(items):
                for item in items:
                    if "by-conftest" in item.nodeid:
                        item.add_marker(pytest.mark.bf_quarantine)

            def pytest_bf_modify_config(config, task):
                assert task.name != "never-started"
            """
        }
    )
    done = project.run("tasks", "--bf-json=r.json", "-rx", "-n", "2")
    assert done.ret == 0
    done.assert_outcomes(passed=1, xfailed=3)
    report = json.loads((project.root / "r.json").read_text())
    assert [entry["status"] for entry in report["rollouts"]] == ["quarantined"] * 4
    assert report["summary"][0]["quarantined"] == 4
    done.stdout.fnmatch_lines(["*quarantined: reward 0.50 is below 1.00*"])


STRICT = """
import pytest

def pytest_itemcollected(item):
    if "strict" in item.nodeid:
        item.add_marker(pytest.mark.xfail(strict=True))
"""


def test_items_without_a_rollout_are_in_the_report_too(project: Project) -> None:
    project.task("tasks/skipped", toml='[benchflow]\nskip = "flaky on fridays"\n')
    project.task("tasks/expected", test=HALF, toml='[benchflow]\nxfail = "known to be hard"\n')
    project.task("tasks/overcome", toml='[benchflow]\nxfail = "known to be hard"\n')
    project.task("tasks/strict")
    (project.task("tasks/linked") / "tests/link").symlink_to("/etc/passwd")
    project.write({"conftest.py": STRICT})
    done = project.run("tasks", "-rsx", "--bf-json=r.json")
    done.assert_outcomes(skipped=1, xfailed=1, xpassed=1, failed=1, errors=1)
    done.stdout.fnmatch_lines(["*flaky on fridays*"])
    done.stdout.fnmatch_lines(["*known to be hard*"])
    assert [path.name.split("__")[0] for path in project.rollout_dirs()] == ["expected", "overcome", "strict"]
    report = json.loads((project.root / "r.json").read_text())
    assert {entry["result"]["task_name"]: entry["status"] for entry in report["rollouts"]} == {
        "expected": "failed",
        "linked": "error",
        "overcome": "passed",
        "skipped": "skipped",
        "strict": "passed",
    }
    assert report["summary"][0]["errors_by_category"] == {"task": 1}
    done.stdout.fnmatch_lines(["agent *passed *errors *skipped *", "oracle *2 of 3 *1 task *1 *"])


def test_time_limits_can_be_set_and_multiplied(project: Project) -> None:
    project.task("tasks/slow", solve="sleep 300")
    done = project.run("tasks", "--bf-agent-timeout=0.1", "--bf-timeout-multiplier=2")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*agent: stopped after 0.2 s*"])


def test_the_environment_of_agent_and_verifier_can_be_given(project: Project) -> None:
    project.task(
        "tasks/given",
        solve='echo "$WORD" > /app/word',
        test="""
        [ "$(cat /app/word)" = hello ] && [ "$CHECK" = strict ] && [ -z "$WORD" ]
        echo $((1 - $?)) > /logs/verifier/reward.txt
    """,
    )
    own = '[solution.env]\nWORD = "own"\n'  # what a solution says itself goes before what is given
    project.task("tasks/own", toml=own, solve='[ "$WORD$MORE" = ownmore ] && echo > done.txt')
    given = ("--bf-agent-env=WORD=hello", "--bf-agent-env=MORE=more", "--bf-verifier-env=CHECK=strict")
    project.run("tasks", *given).assert_outcomes(passed=2)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one-process", "two-workers"])
def test_results_go_where_pytest_was_started_and_the_header_names_the_directory_really_used(
    project: Project, workers: tuple[str, ...]
) -> None:
    project.task("tasks/one")
    project.write(
        {
            "job.yaml": "agent: oracle\nsandbox: local\ntasks: tasks\njob_name: nightly\n",
            "below/jobs/nightly/job.json": '{"run": "1a2b", "created": 0}',
        }
    )
    done = project.run("--bf-config=../job.yaml", *workers, cwd=project.root / "below")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["benchflow: 1 rollout * results in jobs/nightly-2", "results: jobs/nightly-2"])
    assert [*project.root.glob("below/jobs/nightly-2/one__*/result.json")]
    assert not (project.root / "jobs").exists()


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one-process", "two-workers"])
def test_a_job_name_that_is_taken_is_refused_before_anything_runs(project: Project, workers: tuple[str, ...]) -> None:
    project.task("tasks/one")
    project.write({"jobs/mine/job.json": '{"run": "1a2b", "created": 0}'})
    again = project.run("tasks", "--bf-job-name=mine", *workers)
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    told = "jobs/mine exists already; choose another --bf-job-name, remove it, or continue it with --bf-resume"
    assert told in again.stderr.str() + again.stdout.str()
    assert not project.rollout_dirs()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--bf-agent=orakle"], "Unknown agent: 'orakle'. Did you mean: 'oracle'?"),
        (["--bf-sandbox=locl"], "unknown sandbox 'locl'; did you mean local?"),
        (["--bf-trials=0"], "--bf-trials is '0'; give a whole number from 1 up"),
        (["--bf-jobs-dir=pytest.ini", "-n", "2"], "cannot be made: Not a directory; choose another --bf-jobs-dir"),
        (["--bf-json=tasks"], "/tasks cannot be written; name a file in a directory of yours"),
        (["--bf-json=pytest.ini/r.json"], "cannot be written; name a file in a directory of yours"),
        (["--bf-source=/nowhere/repo", "-n", "2"], "--bf-source: /nowhere/repo is not a directory"),
    ],
)
def test_a_bad_option_ends_the_run_with_one_line(three: Project, args: list[str], message: str) -> None:
    done = three.run("tasks", *args)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in done.errlines if line.strip()] == [line for line in done.errlines if message in line]
    assert message in done.stderr.str()


def test_concurrency_is_a_cap(project: Project) -> None:
    """Each of four rollouts notes when it runs, in a directory they share only through their results."""
    for number in range(4):
        project.task(
            f"tasks/t{number}",
            solve="date +%s%N > /app/begin; sleep 0.2; date +%s%N > /app/end",
            test="""
            mkdir -p /logs/verifier && cat /app/begin /app/end > /logs/verifier/times
            echo 1 > /logs/verifier/reward.txt
        """,
        )
    project.run("tasks", "--bf-concurrency=2").assert_outcomes(passed=4)
    spans = [tuple(map(int, path.read_text().split())) for path in project.root.glob("jobs/*/*/verifier/times")]
    assert len(spans) == 4
    assert max(sum(b <= begin < e for b, e in spans) for begin, _ in spans) <= 2


@pytest.mark.parametrize(
    ("keep", "workers", "kept"),
    [("failed", ("-n", "2"), ["bad", "broken"]), ("always", (), ["bad", "broken", "good"])],
    ids=["failed", "always"],
)
def test_a_local_sandbox_that_is_to_be_kept_leaves_its_workspace(
    project: Project, keep: str, kept: list[str], workers: tuple[str, ...]
) -> None:
    project.task("tasks/good")
    project.task("tasks/bad", test=HALF)
    project.task("tasks/broken", test="exit 1")
    project.task("tasks/unbuilt", dockerfile="FROM debian\nRUN false\n")
    done = project.run("tasks", f"--bf-keep-sandbox={keep}", *workers)
    done.assert_outcomes(passed=1, failed=1, errors=2)
    found = [path for path in project.rollout_dirs() if (path / "workspace").exists()]
    assert [path.name.partition("__")[0] for path in found] == kept
    assert all((path / "workspace/done.txt").read_text() == "done\n" for path in found)
    note = "local sandboxes end with their rollout: /app is kept as workspace/ beside its result.json"
    assert len([line for line in done.outlines if note in line]) == 1
    for path in project.rollout_dirs():
        result = json.loads((path / "result.json").read_text())
        assert (note in result["notes"]) is (path in found)


def test_files_of_a_dockerfile_may_come_from_a_context_root(new_project: Callable[..., Project]) -> None:
    project = new_project().write({"shared/lib/tool.py": "tool", "outside/x": "x"})
    dockerfile = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY lib own.txt /app/\n"
    solve = "cat tool.py own.txt > done.txt"
    test = "[ $(cat /app/done.txt) = toolown ] && echo 1 > /logs/verifier/reward.txt"
    task = project.task("tasks/t", dockerfile=dockerfile, solve=solve, test=test, files={"environment/own.txt": "own"})
    before = sorted(task.rglob("*"))
    project.run("tasks", "--bf-context-root=shared").assert_outcomes(passed=1)
    assert sorted(task.rglob("*")) == before
    assert (task / "environment/Dockerfile").read_text() == dockerfile
    (project.root / "shared/lib/link").symlink_to("../../outside")
    done = project.run("tasks", "--bf-context-root=shared")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*environment/Dockerfile:3: lib: *shared/lib/link is a link that leaves the context*"])


def test_another_base_image_is_stood_in_for_in_the_local_sandbox(three: Project) -> None:
    done = three.run("tasks/sound", "--bf-base-image-override=debian:trixie", "--bf-sandbox=local")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["note: FROM debian:trixie is *, the host's own system"])


BACKEND = """
from pytest_benchflow.sandboxes import BackendOption
from pytest_benchflow.sandboxes.local import LocalBackend


class Company(LocalBackend):
    options = (BackendOption("zone", "where machines are rented", default="east"),)

    def configure(self, values):
        print("zone:", values["zone"])


def pytest_bf_register_sandboxes(registry):
    registry.register("company", Company)
"""


def test_a_sandbox_from_elsewhere_has_options_of_its_own(project: Project) -> None:
    project.task("tasks/one")
    project.write({"conftest.py": BACKEND})
    done = project.run("tasks", "-s", "--bf-sandbox=company", "--bf-sandbox-option=company.zone=west")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*zone: west"])
    wrong = project.run("tasks", "--bf-sandbox-option=company.zoen=west", "--bf-sandbox-option=campany.zone=1")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    wrong.stderr.fnmatch_lines(["*unknown option 'zoen' of the sandbox company; did you mean zone?*campany*company?*"])
