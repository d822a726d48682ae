"""Workspaces that are kept, and verified again when the tests have changed."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from project import Project

from pytest_benchflow.cli.main import main

PRINTS_SECRET = "echo done > /app/done.txt; mkdir /app/src; ln -s ../done.txt /app/src/link; ln -s /etc/passwd /app/out"


@pytest.fixture
def saved(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two tasks, of which the solution passes one."""
    monkeypatch.setenv("BF_CACHE_DIR", str(project.cache))
    project.task("tasks/good", solve=f"{PRINTS_SECRET}; chmod 740 /app/done.txt")
    project.task("tasks/strict", test="grep -q perfect /app/done.txt && echo 1 || echo 0.5 >/logs/verifier/reward.txt")
    return project


def run(project: Project, *args: str) -> None:
    project.run("tasks", "--bf-sandbox=local", "--bf-job-name=mine", "--bf-save-workspace", *args)


def regrade(capsys: pytest.CaptureFixture[str], project: Project, *args: str) -> tuple[int, list[str]]:
    capsys.readouterr()
    status = main(["regrade", str(project.root / "jobs/mine"), *args])
    return status, capsys.readouterr().out.splitlines()


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as tar:
        return {member.name: member for member in tar}


def test_a_job_is_verified_again_with_the_present_tests_and_both_results_are_kept(
    saved: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    run(saved)
    before = saved.results()
    (good,) = saved.root.glob("jobs/mine/good__*")
    files = members(good / "workspace.tar.gz")
    assert {"done.txt", "src", "src/link"} <= {*files}
    assert "out" not in files  # a link to the host's own files would be one to nothing, or to worse
    assert files["done.txt"].mode == 0o740
    # The task's author lowers the bar of one task; the agent is not asked again.
    saved.task("tasks/strict", test="grep -q done /app/done.txt && echo 1 >/logs/verifier/reward.txt")
    saved.task("tasks/good", solve="exit 1")
    status, lines = regrade(capsys, saved)
    assert status == 0
    assert sorted(line.partition("  /")[0] for line in lines[:-1]) == [
        "changed  strict oracle  failed 0.5 → passed 1  the task has changed",
        "same     good oracle  passed 1  the task has changed",
    ]
    assert lines[-1] == "2 rollouts: 1 changed, 1 the same"
    assert saved.results() == before
    (new,) = saved.root.glob("jobs/mine/strict__*/regrades/1/result.json")
    result = json.loads(new.read_text())
    assert (result["reward"], result["agent"], result["rollout_dir"]) == (1.0, "oracle", str(new.parent))
    assert (new.parent / "verifier/test-stdout.txt").exists()
    # Once more, and as JSON: another directory, nothing is overwritten.
    status, lines = regrade(capsys, saved, "--task=strict", "--json")
    report = json.loads("\n".join(lines))
    assert (status, report["changed"], len(report["rollouts"])) == (0, 1, 1)
    assert report["rollouts"][0]["before"]["reward"] == 0.5
    assert report["rollouts"][0]["after"]["directory"].endswith("/regrades/2")
    # Resume and metrics go on with the result of the run.
    again = saved.run("tasks", "--bf-sandbox=local", "--bf-resume-anyway")
    again.assert_outcomes(passed=1, failed=1)


def test_what_was_not_kept_cannot_be_verified_again(
    saved: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved.run("tasks/good", "--bf-sandbox=local", "--bf-job-name=mine")
    status, lines = regrade(capsys, saved)
    assert status == 1
    assert lines[0].endswith("has no saved workspace; save it with --bf-save-workspace the next time")
    assert lines[1] == "1 rollout: 0 changed, 0 the same, 1 could not be verified again"
    monkeypatch.chdir(saved.root)
    assert (main(["regrade", "mine"]), main(["regrade", "nowhere"])) == (1, 2)  # a job has a name too


def test_a_workspace_too_large_is_not_kept_and_the_rollout_goes_on(saved: Project) -> None:
    saved.write(
        {
            "conftest.py": """
            import pytest_benchflow.rollout.workspace as workspace
            from pytest_benchflow.sandboxes import ArchiveLimits

            workspace.LIMITS = ArchiveLimits(1000, 10)
            """
        }
    )
    saved.task("tasks/good", solve="head -c 5000000 /dev/zero > /app/big; echo done > /app/done.txt")
    done = saved.run("tasks/good", "--bf-sandbox=local", "--bf-job-name=mine", "--bf-save-workspace")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["note: the workspace could not be saved: it has 4 MB, more than 0 MB"])
    assert sorted(path.name for path in saved.rollout_dir().iterdir() if "workspace" in path.name) == []


def test_an_archive_that_was_tampered_with_leaves_its_directory_nowhere(
    saved: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    run(saved, "-k", "good")
    archive = saved.rollout_dir() / "workspace.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("../../escaped.txt")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    status, lines = regrade(capsys, saved)
    assert status == 1
    assert "sandbox error (the sandbox sent an archive with the path '../../escaped.txt'" in lines[0]
    assert not [*saved.root.rglob("escaped.txt")]
    archive.write_bytes(b"no archive")
    status, lines = regrade(capsys, saved)
    assert status == 1
    assert "sandbox error" in lines[0]
