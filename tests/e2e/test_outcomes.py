"""A weak agent is not a broken harness: what happened decides between passed, failed, error and skipped."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from project import DOCKERFILE, SOLVE, Project, properties

REWARD = "/logs/verifier/reward.txt"
CTRF = json.dumps(
    {
        "results": {
            "tests": [
                {"name": "test_there", "status": "passed"},
                {"name": "test_sorted", "status": "failed"},
                {"name": "test_empty", "status": "failed"},
                {"name": "test_more", "status": "failed"},
            ]
        }
    }
)


@dataclass(frozen=True)
class Ran:
    """One run of all the tasks below, seen from everywhere it is reported."""

    project: Project
    run: pytest.RunResult
    cases: dict[str, ET.Element]
    rollouts: dict[str, dict[str, object]]

    def text(self, task: str) -> str:
        """Return what pytest says about a task's item."""
        case = self.cases[task]
        return "".join(f"{child.get('message', '')}\n{child.text or ''}" for child in case if child.tag != "properties")

    def tags(self, task: str) -> set[str]:
        """Return the JUnit outcome of a task's item."""
        return {child.tag for child in self.cases[task]} & {"failure", "error", "skipped"}

    def properties(self, task: str) -> dict[str, str]:
        """Return the JUnit properties of a task's item."""
        return properties(self.cases[task])


HARM = {
    "no-bash": "rm -f /bin/bash /usr/bin/bash",
    "no-programs": "rm -rf /usr/bin /usr/sbin /bin /sbin 2>/dev/null",
    "false-bash": "cp /bin/true /tmp/t; rm -f /usr/bin/bash; cp /tmp/t /usr/bin/bash",
    "no-loader": "rm -f $(readlink -f /lib64/ld-linux-*.so.*) /lib64/ld-linux-*.so.*",
    "no-room": "head -c 300M /dev/zero >/fill; true",
    "no-mkdir": "rm -f /bin/mkdir /usr/bin/mkdir; cd /; rm -rf /logs/verifier",
    "looped-logs": "rm -rf /logs; ln -s /logs /logs",
    "linked-artifacts": "rmdir /logs/artifacts; ln -s /usr /logs/artifacts; rm -rf /logs/agent; ln -s /usr /logs/agent",
}
"""What an agent that is root can do to the environment it leaves."""
SPOILED = ["no-bash", "no-programs", "false-bash", "no-loader", "no-room", "no-mkdir"]


def write_tasks(project: Project) -> None:
    project.task("tasks/passes")
    project.task(
        "tasks/low", test=f"echo 0.25 > {REWARD}; cp /tests/ctrf.json /logs/verifier/", files={"tests/ctrf.json": CTRF}
    )
    project.task("tasks/test-sh-exits-1", test=f"echo 1 > {REWARD}; exit 1")
    project.task("tasks/several-keys", test='echo \'{"speed": 1, "style": 0.5}\' > /logs/verifier/reward.json')
    project.task("tasks/solve-exits-1", solve=f"{SOLVE}; exit 1")
    project.task(
        "tasks/solve-hangs",
        solve=f"{SOLVE}; sleep 300",
        toml="[agent]\ntimeout_sec = 300\n[solution]\ntimeout_sec = 3\n",
    )
    project.task(
        "tasks/solve-exits-1-undone", solve="echo 'Half of it: 50%'; echo no-such: command not found >&2; exit 3"
    )
    project.task("tasks/floods-its-logs", solve=f"{SOLVE}; truncate -s 3G /logs/agent/flood")
    for name, harm in HARM.items():
        project.task(f"tasks/{name}", solve=harm, toml="[environment]\nstorage_mb = 100\n")
    project.task("tasks/no-workspace", solve="cd / && rm -rf /app")
    project.task("tasks/file-for-workspace", solve="cd / && rm -rf /app && echo > /app")
    project.task("tasks/escapes", test=f"printf '\\033[31mred\\033]0;title\\007\\n'; echo 0 > {REWARD}")
    project.task("tasks/no-reward", test="echo nothing; exit 7")
    project.task("tasks/verifier-killed", test="kill -KILL $$")
    project.task("tasks/repeated-key", test='echo \'{"reward": 1, "reward": 0}\' > /logs/verifier/reward.json')
    project.task("tasks/bad-reward", test=f"echo true > {REWARD}")
    project.task("tasks/two-rewards", test=f"echo 1 > {REWARD}; echo '{{\"reward\": 0}}' > /logs/verifier/reward.json")
    project.task("tasks/out-of-range", test=f"echo 2 > {REWARD}", toml="[verifier]\nreward_range = [0, 1]\n")
    project.task("tasks/verifier-hangs", test=f"echo 1 > {REWARD}; sleep 300", toml="[verifier]\ntimeout_sec = 1\n")
    project.task("tasks/no-logs", test="rm -rf /logs/verifier")
    project.task(
        "tasks/build-fails",
        dockerfile=f"{DOCKERFILE}RUN echo printed-$((40+2)); printf ' 50%%\\r100%%\\n'; echo E: no package; false\n",
    )
    project.task(
        "tasks/unhealthy",
        toml='[environment.healthcheck]\ncommand = "echo not yet; false"\nretries = 2\ninterval_sec = 0.05\n',
    )
    project.task("tasks/env-missing", toml='[environment.env]\nTOKEN = "${BENCHFLOW_TEST_TOKEN}"\n')
    project.task("tasks/no-solution", solve=None)
    windows = {"tests/test.bat": "", "solution/solve.bat": ""}
    project.task("tasks/windows", toml='[environment]\nos = "windows"\n', files=windows)
    project.task("tasks/gpus", toml="[environment]\ngpus = 1\n")
    project.task("tasks/urls", toml='[environment]\nnetwork_mode = "denylist"\nblocked_urls = ["a.org/page"]\n')
    project.task(
        "tasks/compose",
        toml='artifacts = [{source = "/x", service = "db"}]\n',
        files={"environment/docker-compose.yaml": "services: {db: {}}\n"},
    )
    image = project.task("tasks/image", toml='[environment]\ndocker_image = "alpine:3"\n')
    (image / "environment/Dockerfile").unlink()


@pytest.fixture(scope="module")
def ran(new_project: Callable[..., Project]) -> Ran:
    project = new_project()
    write_tasks(project)
    run = project.run("tasks", "-ra", "--junitxml=r.xml", "--bf-json=r.json")
    cases = {case.attrib["classname"].split(".")[1]: case for case in ET.parse(project.root / "r.xml").iter("testcase")}
    report = json.loads((project.root / "r.json").read_text())
    rollouts = {entry["id"].split("/")[1]: entry for entry in report["rollouts"]}
    return Ran(project, run, cases, rollouts)


PASSED = ["passes", "test-sh-exits-1", "solve-exits-1", "solve-hangs", "floods-its-logs"]
FAILED = ["low", "several-keys", "escapes", "solve-exits-1-undone", "no-workspace", "file-for-workspace", *HARM]
ERRORS = {
    "no-reward": (
        "reward",
        "verify",
        "the verifier left no reward.txt or reward.json in /logs/verifier (it holds test-stdout.txt); "
        "it exited with 7, and its last line is nothing; let test.sh",
    ),
    "verifier-killed": ("reward", "verify", "; it was killed by SIGKILL and printed nothing; let test.sh"),
    "repeated-key": ("reward", "verify", "reward.json has the key reward 2 times; write it once"),
    "bad-reward": ("reward", "verify", "reward.txt holds 'true"),
    "two-rewards": ("reward", "verify", "reward.json says 0 and reward.txt says 1"),
    "out-of-range": ("reward", "verify", "reward is 2, outside [0, 1]"),
    "verifier-hangs": ("verifier", "verify", "did not end within 1 s"),
    "no-logs": ("verifier", "verify", "the verifier removed /logs/verifier"),
    "build-fails": ("build", "start", "; false: exit status 1: E: no package\n    printed-42\n"),
    "unhealthy": ("healthcheck", "start", "failed 2 times: exit status 1, not yet"),
    "env-missing": ("credentials", "setup", "needs the environment variable BENCHFLOW_TEST_TOKEN"),
    "gpus": ("unsupported", "setup", "the local sandbox does not support [environment] gpus"),
    "urls": ("unsupported", "setup", "the local sandbox does not support [environment] blocked_urls with a path"),
    "compose": (
        "unsupported",
        "setup",
        'environment/docker-compose.yaml, [[artifacts]] service = "db"; use --bf-sandbox',
    ),
    "image": ("unsupported", "setup", "the local sandbox does not support [environment] docker_image"),
}
SKIPPED = {"no-solution": "no oracle solution", "windows": 'os = "windows"'}


def test_the_counts_add_up(ran: Ran) -> None:
    ran.run.assert_outcomes(passed=len(PASSED), failed=len(FAILED), errors=len(ERRORS), skipped=len(SKIPPED))
    assert ran.run.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("task", PASSED)
def test_a_reward_that_reaches_the_threshold_passes(ran: Ran, task: str) -> None:
    assert ran.tags(task) == set()
    assert ran.rollouts[task]["status"] == "passed"


@pytest.mark.parametrize("task", FAILED)
def test_a_reward_below_the_threshold_is_a_failure(ran: Ran, task: str) -> None:
    assert ran.tags(task) == {"failure"}
    assert ran.rollouts[task]["status"] == "failed"


@pytest.mark.parametrize("task", ERRORS)
def test_a_broken_harness_is_an_error_with_category_and_phase_and_never_a_reward(ran: Ran, task: str) -> None:
    category, phase, said = ERRORS[task]
    assert ran.tags(task) == {"error"}
    assert f"{category} error in {phase}: " in ran.text(task)
    assert said in ran.text(task)
    assert (ran.properties(task)["bf_error_category"], ran.properties(task)["bf_error_phase"]) == (category, phase)
    assert "bf_reward" not in ran.properties(task)
    result = ran.rollouts[task]["result"]
    assert ran.rollouts[task]["status"] == "error"
    assert (result["reward"], result["rewards"]) == (None, None)


@pytest.mark.parametrize("task", SKIPPED)
def test_what_cannot_run_here_by_design_is_skipped_and_says_why(ran: Ran, task: str) -> None:
    assert ran.tags(task) == {"skipped"}
    assert ran.rollouts[task]["status"] == "skipped"
    assert SKIPPED[task] in ran.text(task)
    assert SKIPPED[task] in ran.run.stdout.str()


@pytest.mark.parametrize("task", ["gpus", "urls", "compose", "image", "env-missing"])
def test_what_is_refused_starts_nothing(ran: Ran, task: str) -> None:
    assert not [
        path
        for path in ran.project.rollout_dirs()
        if path.name.startswith(f"{task}__") and (path / "sandbox.json").exists()
    ]


def test_a_failure_says_reward_checks_and_place(ran: Ran) -> None:
    assert (
        "reward 0.25 is below 1.00 · 1 of 4 checks passed · failing: test_sorted, test_empty, test_more · "
        in ran.text("low")
    )
    assert f" · jobs/{Path(ran.properties('low')['bf_rollout_dir']).parent.name}/low__" in ran.text("low")


@pytest.mark.parametrize(
    ("task", "outcome"),
    [
        ("passes", "completed"),
        ("solve-exits-1", "nonzero_exit"),
        ("solve-hangs", "timed_out"),
        ("solve-exits-1-undone", "nonzero_exit"),
    ],
)
def test_how_the_agent_ended_is_recorded_beside_the_reward(ran: Ran, task: str, outcome: str) -> None:
    assert ran.properties(task)["bf_agent_outcome"] == outcome
    assert ran.rollouts[task]["result"]["agent_outcome"] == outcome


def test_a_failure_says_that_the_agent_gave_up(ran: Ran) -> None:
    assert "solve.sh exited with 3: no-such: command not found" in ran.text("solve-exits-1-undone")


@pytest.mark.parametrize("task", SPOILED)
def test_an_agent_that_breaks_its_environment_has_failed_and_is_told_so(ran: Ran, task: str) -> None:
    assert "reward 0.00 is below 1.00 · agent: left an environment that cannot be verified: " in ran.text(task)
    assert ran.properties(task)["bf_reward"] == "0.0"


def test_links_in_place_of_log_directories_are_not_followed(ran: Ran) -> None:
    result = ran.rollouts["linked-artifacts"]["result"]
    assert {f"{path} is a link of the agent's, and not copied" for path in ("/logs/agent", "/logs/artifacts")} <= {
        *result["notes"]
    }
    files = [path for path in Path(result["rollout_dir"]).rglob("*") if path.is_file()]
    assert len(files) < 20


def test_each_key_of_the_reward_is_a_property_and_the_mean_decides(ran: Ran) -> None:
    found = ran.properties("several-keys")
    assert (found["bf_reward"], found["bf_reward_speed"], found["bf_reward_style"]) == ("0.75", "1.0", "0.5")


def test_the_task_is_part_of_the_name_in_junit(ran: Ran) -> None:
    assert [case.get("name") for case in ran.cases.values()] == [f"{task}/oracle" for task in ran.cases]


def test_the_properties_tell_the_whole_story(ran: Ran) -> None:
    found = ran.properties("passes")
    assert found["bf_task"] == "passes"
    assert found["bf_agent"] == "oracle"
    assert found["bf_sandbox"] == "local"
    assert (found["bf_reward"], found["bf_threshold"], found["bf_trial"]) == ("1.0", "1.0", "1")
    assert float(found["bf_seconds_total"]) >= float(found["bf_seconds_verify"]) > 0
    assert len(found["bf_task_digest"].removeprefix("sha256:")) == 64
    assert (ran.project.root / found["bf_rollout_dir"] / "result.json").exists()


def test_no_text_shows_a_traceback_of_ours(ran: Ran) -> None:
    text = ran.run.stdout.str()
    for word in ("Traceback", "pytest_benchflow/", "site-packages", "reward_reaches_threshold", "def "):
        assert word not in text


def test_what_the_verifier_says_is_shown_without_escape_sequences(ran: Ran) -> None:
    assert "red" in ran.text("escapes") or "red" in ran.run.stdout.str()
    for text in (ran.run.stdout.str(), ran.text("escapes")):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "#x1B" not in text


def test_the_build_error_shows_what_the_command_said(ran: Ran) -> None:
    assert "printed-42" in ran.text("build-fails")


def test_every_item_has_exactly_one_outcome_in_junit(ran: Ran) -> None:
    suite = ET.parse(ran.project.root / "r.xml").find("testsuite")
    assert suite is not None
    assert (suite.attrib["failures"], suite.attrib["errors"], suite.attrib["skipped"]) == (
        str(len(FAILED)),
        str(len(ERRORS)),
        str(len(SKIPPED)),
    )
    assert suite.attrib["tests"] == str(len(ran.cases))


def test_an_error_is_recorded_on_disk_too(ran: Ran) -> None:
    result = json.loads((ran.project.root / ran.properties("no-reward")["bf_rollout_dir"] / "result.json").read_text())
    assert result["error"]["category"] == "reward"
    assert result["error"]["phase"] == "verify"


def test_one_summary_line_per_agent_names_the_errors(ran: Ran) -> None:
    (row,) = [line for line in ran.run.outlines if line.startswith("oracle ")]
    assert f"{len(PASSED)} of {len(PASSED) + len(FAILED)}" in row
    assert "4 unsupported" in row
    assert "6 reward" in row


def test_a_missing_variable_is_taken_from_the_environment_when_it_is_there(ran: Ran) -> None:
    ran.project.run("tasks/env-missing", env={"BENCHFLOW_TEST_TOKEN": "t0ken"}).assert_outcomes(passed=1)


HOSTILE = "odd \x1b[31m\x07\n & <key>"


@pytest.fixture(scope="module")
def hostile(new_project: Callable[..., Project]) -> tuple[pytest.RunResult, ET.Element]:
    """Run tasks whose verifier puts control characters into every name that is reported."""
    project = new_project()
    files = {
        "tests/ctrf.json": json.dumps({"results": {"tests": [{"name": HOSTILE, "status": "failed"}]}}),
        "tests/number.json": json.dumps({HOSTILE: 0}),
        "tests/null.json": json.dumps({HOSTILE: None}),
    }
    copy = "cp /tests/ctrf.json /logs/verifier/; cp /tests/{} /logs/verifier/reward.json"
    project.task("tasks/number", test=copy.format("number.json"), files=files)
    project.task("tasks/null", test=copy.format("null.json"), files=files)
    run = project.run("tasks", "--junitxml=r.xml")
    run.assert_outcomes(failed=1, errors=1)
    return run, ET.parse(project.root / "r.xml").getroot()


def test_hostile_names_do_not_break_the_xml(hostile: tuple[pytest.RunResult, ET.Element]) -> None:
    assert len(list(hostile[1].iter("testcase"))) == 2


def test_hostile_names_do_not_drive_the_terminal(hostile: tuple[pytest.RunResult, ET.Element]) -> None:
    assert not {"\x1b", "\x07"} & set(hostile[0].stdout.str())


def test_hostile_names_do_not_break_lines(hostile: tuple[pytest.RunResult, ET.Element]) -> None:
    assert [line for line in hostile[0].outlines if "failing: odd" in line and "<key>" in line]
    assert [line for line in hostile[0].outlines if "reward.json: odd" in line and "<key> is null" in line]
