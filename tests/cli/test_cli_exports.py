"""`bf export`, `bf junit` and `bf markdown`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jobs.results import write_result
from junitparser import JUnitXml
from reporting.dialogues import rollout

from pytest_benchflow.cli.main import main


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job with one rollout that passed and one that failed."""
    for task, reward in (("good", 1.0), ("bad", 0.0)):
        directory = tmp_path / f"jobs/one/{task}__1"
        write_result(directory, rollout(directory, task=task, reward=reward, key=f"tasks/{task}/task.toml::gemini"))
    return tmp_path / "jobs/one"


def _bf(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("bf")), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_trajectories_are_exported(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(job), "--format", "atif", "-o", str(tmp_path / "atif")]) == 0
    assert capsys.readouterr().out == f"2 trajectories in {tmp_path}/atif\n"
    assert sorted(path.name for path in (tmp_path / "atif").iterdir()) == ["bad__1.json", "good__1.json"]
    assert main(["export", str(job), "--format", "training", "-o", str(tmp_path / "data"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == {"rollouts.jsonl": 2, "rl.jsonl": 2, "sft.jsonl": 1}


def test_a_job_is_given_to_ci_systems(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["junit", str(job), "-o", str(tmp_path / "new/r.xml")]) == 0
    (suite,) = JUnitXml.fromfile(str(tmp_path / "new/r.xml"))
    assert [case.name for case in suite] == ["bad/gemini", "good/gemini"]
    for more in ([], ["-o", "-"]):
        assert main(["markdown", str(job), *more]) == 0
        assert "### ❌ 1 of 2 rollouts passed" in capsys.readouterr().out


def test_mistakes_are_one_line_without_a_traceback(job: Path, tmp_path: Path) -> None:
    done = _bf("junit", str(tmp_path / "nothing"))
    assert done.returncode == 2
    assert done.stderr == (
        f"bf: {tmp_path}/nothing cannot be read: No such file or directory; "
        "name a job's directory or a file that --bf-json wrote\n"
    )
    done = _bf("export", str(job), "--format", "training", "-o", "x", "--holdout", "2")
    assert done.returncode == 2
    assert "argument --holdout: '2' is not a share; expected a number from 0 to 1" in done.stderr
    (tmp_path / "file").write_text("")
    for words in (("--format", "training"), ("--format", "atif")):
        done = _bf("export", str(job), *words, "-o", str(tmp_path / "file"))
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith(f"bf: {tmp_path}/file cannot be written: ")
    done = _bf("junit", str(job), "-o", str(tmp_path / "file/r.xml"))
    assert done.returncode == 2
    assert "r.xml cannot be written: " in done.stderr
