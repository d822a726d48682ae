"""`bf run`, `bf job`, `bf eval` and `bf metrics`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
from project import write_task

from pytest_benchflow.cli.main import main


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job file over two tasks, one of which fails."""
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path / "tasks/good")
    write_task(tmp_path / "tasks/bad", test="echo 0 > /logs/verifier/reward.txt")
    file = tmp_path / "job.yaml"
    file.write_text("agent: oracle\nsandbox: local\ntasks: tasks\n")
    return file


def test_a_job_file_is_run_and_its_results_are_counted(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(job.read_text() + "build_concurrency: 3\n")
    assert main(["run", str(job), "--job-name", "mine"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("job.yaml:4: build_concurrency has no effect; ")
    assert "passed  good  reward 1" in out
    assert "failed  bad  reward 0" in out
    assert out.splitlines()[-1] == "1 of 2 passed (50.0%), results in jobs/mine"
    assert main(["metrics", str(job.parent / "jobs"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["total"], summary["passed"], summary["agent"]) == (2, 1, "oracle")
    assert main(["metrics", str(job.parent / "jobs"), "-b", "demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "demo oracle"
    assert ["pass", "rate", "0.5"] in [line.split() for line in lines]


def test_an_error_of_the_harness_is_told_by_the_exit_status(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_task(job.parent / "tasks/mute", test="true")
    assert main(["run", str(job)]) == 1
    assert "error   mute  reward in verify: the verifier left no reward.txt" in capsys.readouterr().out


def test_a_broken_job_file_starts_nothing(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text("agnet: oracle")
    assert main(["run", str(job)]) == 1
    assert "job.yaml:1: agnet is not a known key; did you mean agent?" in capsys.readouterr().err
    assert not (job.parent / "jobs").exists()


def test_a_single_task_tells_what_came_of_it(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-t", "tasks/good", "-a", "oracle", "-e", "local", "--job-name", "mine"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "passed  good  reward 1",
        "good · oracle · 0 tool calls · reward 1",
        "1 of 1 passed (100.0%), results in jobs/mine",
    ]
    assert main(["run", "tasks/good", "-a", "oracle", "--env", "local", "--job-name", "mine", "--resume"]) == 0
    assert len([*(job.parent / "jobs/mine").glob("good__*")]) == 1


@pytest.mark.parametrize("command", [["job"], ["eval", "create"], ["eval", "run"]])
def test_many_tasks_run_under_the_names_of_older_tools(
    job: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    options = ["-a", "oracle", "-e", "local", "-c", "2", "--retries", "1", "--exclude", "b*", "-o", "out", "--json"]
    assert main([*command, "-t", "tasks", *options]) == 0
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert (summary["total"], summary["passed"]) == (1, 1)
    assert Path(summary["job_dir"]).parent.name == "out"
    assert err == "passed  good  reward 1\n"
    assert main(["eval", "list", "out", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["job"], row["passed"], row["rollouts"]) == (Path(summary["job_dir"]).name, 1, 1)


def test_options_reach_the_rollouts(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-a", "nop", "-e", "local", "--ae", "SAY=hello", "--trials", "2", "--sandbox-user", "none", "-p", "Do it."]
    assert main(["job", "-t", "tasks/good", *words, "--job-name", "mine"]) == 0
    configs = [json.loads(path.read_text()) for path in (job.parent / "jobs/mine").glob("*/config.json")]
    assert sorted(config["trial"] for config in configs) == [1, 2]
    assert all((config["agent"], config["sandbox_user"]) == ("nop", None) for config in configs)
    assert all(config["agent_env"] == ["SAY"] for config in configs)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "name one thing to run"),
        (["job.yaml", "-t", "tasks"], 2, "tasks and job.yaml: name one thing to run"),
        (["job.yaml", "-a", "nop", "-c", "3"], 2, "--agent, --concurrency would have no effect: job.yaml says it"),
        (["-t", "tasks", "-c", "many"], 2, "'many' is not a whole number from 0 up"),
        (["-t", "nowhere"], 1, "bf: nowhere does not exist"),
        (["-t", "tasks", "-a", "gemni"], 1, "bf: Unknown agent: 'gemni'. Did you mean: 'gemini'?"),
        (["-t", "tasks", "--ae", "secret-value"], 1, "--agent-env 'secret-value' is not an assignment"),
        (["-t", "tasks", "-e", "dokcer"], 1, "did you mean docker?"),
    ],
)
def test_mistakes_are_told_in_a_line(
    job: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(["run", *words]))
    assert ended.value.code == status
    assert message in capsys.readouterr().err
    assert not (job.parent / "jobs").exists()


def test_shells_complete_commands_options_and_agents(tmp_path: Path) -> None:
    bf = str(Path(sys.executable).with_name("bf"))
    for shell in ("bash", "zsh", "fish"):
        words = [bf, "completion", shell]
        script = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
        assert "claude-agent-acp" in script
        (tmp_path / shell).write_text(script)
        if which(shell):
            subprocess.run([shell, "-n", shell], cwd=tmp_path, check=True, timeout=60)
    ask = "source ./bash; COMP_WORDS=(bf run --agent gemi); COMP_CWORD=3; _shtab_bf; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "gemini\n"


def test_a_directory_without_results_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "result.json").write_text("{")
    assert main(["metrics", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert f"{tmp_path}/result.json cannot be read" in err
    assert f"there is no result in {tmp_path}; name a job" in err


def test_rollouts_without_a_result_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed = tmp_path / "jobs/mine/hello__1a2b3c4d"
    (killed / "artifacts/app").mkdir(parents=True)
    (killed / "config.json").write_text('{"rollout_name": "hello__1a2b3c4d"}')
    (killed / "artifacts/app/config.json").write_text('{"theirs": 1}')
    assert main(["metrics", str(tmp_path / "jobs")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{killed} has no result: it was killed, or still runs"
    assert lines[1].startswith("bf: there is no result in ")
