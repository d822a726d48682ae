"""`bf run` and `bf metrics`."""

from __future__ import annotations

import json
from pathlib import Path

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
    assert main(["run", str(job)]) == 2
    assert "job.yaml:1: agnet is not a known key; did you mean agent?" in capsys.readouterr().err
    assert not (job.parent / "jobs").exists()


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
    assert lines[1].startswith("there is no result in ")
