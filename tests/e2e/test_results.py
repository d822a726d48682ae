"""What a run leaves on disk, and what the report says about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from project import Project

from pytest_benchflow.reporting import Report

SECRETS = {"agent": "agent-s3cret", "verifier": "verifier-s3cret", "task": "task-s3cret"}


@dataclass(frozen=True)
class Ran:
    """A run of a passing, a failing and a broken task by two agents."""

    project: Project
    run: pytest.RunResult
    report: Report

    def directory(self, task: str, agent: str = "oracle") -> Path:
        """Return the directory of one rollout."""
        (found,) = [
            entry.result.rollout_dir
            for entry in self.report.rollouts
            if entry.result.task_name == task and entry.result.agent == agent
        ]
        assert found is not None
        return self.project.root / found

    def json(self, task: str, file: str) -> object:
        return json.loads((self.directory(task) / file).read_text())


@pytest.fixture(scope="module")
def ran(new_project: Callable[..., Project]) -> Ran:
    project = new_project()
    project.task(
        "tasks/good",
        toml='[environment.env]\nSECRET = "${BENCHFLOW_SECRET}"\n',
        solve="echo said; echo done > done.txt",
    )
    project.task("tasks/bad", test='echo \'{"reward": 0.25, "style": 1}\' > /logs/verifier/reward.json; echo looked')
    project.task("tasks/broken", test="exit 0")
    run = project.run(
        "tasks",
        "--bf-agent=oracle,nop",
        "--bf-json=r.json",
        "--bf-html=r.html",
        "--bf-markdown=out/r.md",
        "--bf-atif=atif",
        f"--bf-agent-env=AGENT_SECRET={SECRETS['agent']}",
        f"--bf-verifier-env=VERIFIER_SECRET={SECRETS['verifier']}",
        "-n",
        "2",
        env={
            "BENCHFLOW_SECRET": SECRETS["task"],
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(project.root),
            "GITHUB_STEP_SUMMARY": str(project.root / "summary.md"),
        },
    )
    return Ran(project, run, Report.model_validate_json((project.root / "r.json").read_text()))


def test_every_rollout_has_a_directory_named_after_task_and_key(ran: Ran) -> None:
    names = [path.name for path in ran.project.rollout_dirs()]
    assert len(names) == 6
    assert sorted({name.split("__")[0] for name in names}) == ["bad", "broken", "good"]
    assert all(len(name.split("__")[1]) == 8 for name in names)


def test_a_rollout_leaves_its_files_and_nothing_else(ran: Ran) -> None:
    directory = ran.directory("good")
    assert {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()} >= {
        "config.json",
        "result.json",
        "timing.json",
        "prompts.json",
        "sandbox.json",
        "agent/oracle.txt",
        "trajectory/acp_trajectory.jsonl",
        "verifier/reward.txt",
        "verifier/test-stdout.txt",
    }
    everything = [*ran.project.root.glob("jobs/**/*")]
    assert not [path for path in everything if path.name.endswith(".tmp") or path.name == "workspace"]


def test_the_configuration_says_what_ran(ran: Ran) -> None:
    config = ran.json("good", "config.json")
    assert config["agent"] == "oracle"
    assert config["sandbox"] == "local"
    assert config["task_path"] == str(ran.project.root / "tasks/good")
    assert config["key"].endswith("tasks/good/task.toml::oracle")
    assert config["agent_env"] == ["AGENT_SECRET"]


def test_values_of_the_environment_are_never_on_disk(ran: Ran) -> None:
    files = [path for path in ran.project.root.rglob("*") if path.is_file() and "tasks" not in path.parts[-3:]]
    assert files
    assert not [path for path in files if b"s3cret" in path.read_bytes()]
    assert "s3cret" not in ran.run.stdout.str()


def test_the_result_on_disk_is_the_result_in_the_report(ran: Ran) -> None:
    for entry in ran.report.rollouts:
        directory = ran.project.root / entry.result.rollout_dir
        on_disk = json.loads((directory / "result.json").read_text())
        reported = entry.result.model_dump(mode="json")
        assert {**on_disk, "rollout_dir": None} == {**reported, "rollout_dir": None}


def test_the_timing_has_every_phase(ran: Ran) -> None:
    timing = ran.json("good", "timing.json")
    assert set(timing) >= {"setup", "start", "install_agent", "connect", "execute", "verify", "total"}
    assert all(isinstance(seconds, float) and seconds >= 0 for seconds in timing.values())


def test_the_prompt_is_kept(ran: Ran) -> None:
    assert ran.json("good", "prompts.json") == ["Make done.txt.\n"]


def test_events_are_numbered_and_dated(ran: Ran) -> None:
    lines = (ran.directory("good") / "trajectory/acp_trajectory.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert all(event["ts"] > 1_600_000_000 for event in events)
    assert events[0]["stdout"] == "said\n"


def test_the_agents_output_is_kept(ran: Ran) -> None:
    assert (ran.directory("good") / "agent/oracle.txt").read_text() == "said\n"


def test_the_verifiers_output_is_kept(ran: Ran) -> None:
    assert (ran.directory("bad") / "verifier/test-stdout.txt").read_text() == "looked\n"
    assert json.loads((ran.directory("bad") / "verifier/reward.json").read_text()) == {"reward": 0.25, "style": 1}


def test_the_totals_of_the_report_match_its_rollouts(ran: Ran) -> None:
    groups = {group.agent: group for group in ran.report.summary}
    assert {agent: (g.rollouts, g.passed, g.failed, g.errors, g.skipped) for agent, g in groups.items()} == {
        "oracle": (3, 1, 1, 1, 0),
        "nop": (3, 0, 2, 1, 0),
    }
    for agent, group in groups.items():
        entries = [entry for entry in ran.report.rollouts if entry.result.agent == agent]
        assert group.rollouts == len(entries)
        for status, count in (("passed", group.passed), ("failed", group.failed), ("error", group.errors)):
            assert count == sum(entry.status == status for entry in entries)
        rewards = [entry.result.reward for entry in entries if entry.result.reward is not None]
        assert group.mean_reward == pytest.approx(sum(rewards) / len(rewards))
        assert group.pass_rate == pytest.approx(group.passed / (group.passed + group.failed))
        assert group.errors_by_category == {"reward": 1}


def test_the_report_says_how_the_run_ended(ran: Ran) -> None:
    assert ran.report.exit_status == ran.run.ret == pytest.ExitCode.TESTS_FAILED
    assert ran.report.schema_version == "1.0"
    assert ran.report.started_at < ran.report.finished_at
    assert Path(ran.project.root / ran.report.job_dir).is_dir()


def test_the_report_fits_its_json_schema(ran: Ran) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(
        json.loads((ran.project.root / "r.json").read_text()), Report.model_json_schema(mode="serialization")
    )


def test_the_other_reports_are_written_and_named_at_the_end(ran: Ran) -> None:
    ran.run.stdout.fnmatch_lines(["report: r.json", "summary: out/r.md", "trajectories: atif"])
    markdown = (ran.project.root / "out/r.md").read_text()
    assert markdown.startswith("<!-- pytest-benchflow -->\n### 💥 1 of 4 rollouts passed, 2 errors\n")
    files = {path.stem for path in (ran.project.root / "atif").iterdir()}
    assert files == {ran.directory(task).name for task in ("good", "bad", "broken")}


def test_github_is_given_a_summary_and_annotations_once(ran: Ran) -> None:
    assert (ran.project.root / "summary.md").read_text() == (ran.project.root / "out/r.md").read_text() + "\n"
    commands = [line for line in ran.run.outlines if line.startswith("::")]
    assert len(commands) == 5
    place = "file=tasks/bad/task.toml,line=1,title=bad · oracle"
    assert f"::error {place}::reward 0.25 is below 1.00" in commands


def test_a_report_that_cannot_be_written_is_told_and_the_run_is_not_green(project: Project) -> None:
    project.task("tasks/one", solve="echo > done.txt")
    project.write(
        {
            "conftest.py": """
            import pathlib

            def pytest_bf_rollout_result(result):
                pathlib.Path("r.json").mkdir()
            """
        }
    )
    done = project.run("tasks", "--bf-json=r.json")
    done.assert_outcomes(passed=1)
    assert done.ret == pytest.ExitCode.INTERNAL_ERROR
    done.stdout.fnmatch_lines(["oracle * 1 of 1 *", "report: r.json could not be written: Is a directory"])


def test_a_report_is_written_even_if_nothing_ran(project: Project) -> None:
    project.task("tasks/one")
    done = project.run("tasks", "-k", "nothing", "--bf-json=r.json")
    assert done.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    report = Report.model_validate_json((project.root / "r.json").read_text())
    assert (report.rollouts, report.exit_status) == ([], 5)


def test_secrets_that_agent_and_verifier_print_are_masked_everywhere(project: Project) -> None:
    toml = """
        [environment.env]
        SAID = "${BENCHFLOW_SECRET}"
        PLACE = "${BENCHFLOW_PLACE}"
        [[environment.setup_commands]]
        command = "echo $PREPARED > /app/prepared"
        env = {PREPARED = "${BENCHFLOW_PREPARED_KEY}"}
        [[verifier.collect]]
        command = "echo $SAID; exit 1"
        [solution.env]
        SOLVING_TOKEN = "${BENCHFLOW_WORD}"
    """
    project.task(
        "tasks/one",
        toml=toml,
        solve="cat prepared; echo $PLACE; echo $SAID $AGENT_SECRET $SOLVING_TOKEN; env > /logs/artifacts/env",
        test="cat /app/prepared; echo looked at $SAID by $VERIFIER_SECRET; echo 0 > /logs/verifier/reward.txt",
    )
    done = project.run(
        "tasks",
        "--bf-json=r.json",
        "--junitxml=r.xml",
        f"--bf-agent-env=AGENT_SECRET={SECRETS['agent']}",
        f"--bf-verifier-env=VERIFIER_SECRET={SECRETS['verifier']}",
        env={
            "BENCHFLOW_SECRET": SECRETS["task"],
            "BENCHFLOW_PLACE": "/srv/somewhere",
            "BENCHFLOW_PREPARED_KEY": "prepared-s3cret",
            "BENCHFLOW_WORD": "word-s3cret",
        },
    )
    done.assert_outcomes(failed=1)
    assert "looked at [secret] by [secret]" in done.stdout.str()
    files = [path for path in project.root.rglob("*") if path.is_file()]
    assert project.rollout_dir() / "artifacts/logs/artifacts/env" in files
    assert not [path for path in files if b"s3cret" in path.read_bytes()]
    assert "s3cret" not in done.stdout.str()
    # A variable with an ordinary name is no secret.
    assert "/srv/somewhere\n" in (project.rollout_dir() / "agent/oracle.txt").read_text()


def test_the_page_is_written_beside_the_report(ran: Ran) -> None:
    ran.run.stdout.fnmatch_lines(["report: r.json", "report: r.html"])
    page = (ran.project.root / "r.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count('id="bf-blob-') == 1
    assert not [secret for secret in SECRETS.values() if secret in page]
