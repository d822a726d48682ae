"""The directory of a job: one for all processes of a run, and never another run's."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.jobs import claim_job_directory

CLAIM = """
import sys
from pathlib import Path
from pytest_benchflow.jobs import claim_job_directory
print(claim_job_directory(Path(sys.argv[1]), "now", sys.argv[2], exact=False).name)
"""


def test_the_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    directory = claim_job_directory(tmp_path / "deep" / "jobs", "now", "run-1", exact=False)
    assert directory == tmp_path / "deep" / "jobs" / "now"
    assert directory.is_dir()


def test_processes_of_one_run_share_it(tmp_path: Path) -> None:
    first = claim_job_directory(tmp_path, "now", "run-1", exact=True)
    assert claim_job_directory(tmp_path, "now", "run-1", exact=True) == first


def test_another_run_gets_another_one(tmp_path: Path) -> None:
    names = [claim_job_directory(tmp_path, "now", f"run-{n}", exact=False).name for n in range(3)]
    assert names == ["now", "now-2", "now-3"]


def test_another_run_is_refused_a_name_it_asked_for(tmp_path: Path) -> None:
    claim_job_directory(tmp_path, "mine", "run-1", exact=True)
    with pytest.raises(
        UsageError, match=r"mine exists already; choose another --bf-job-name, remove it, or continue it"
    ):
        claim_job_directory(tmp_path, "mine", "run-2", exact=True)


def test_a_directory_that_no_run_made_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(UsageError, match="exists already"):
        claim_job_directory(tmp_path, "mine", "run-1", exact=True)


def test_a_damaged_marker_belongs_to_nobody(tmp_path: Path) -> None:
    claim_job_directory(tmp_path, "now", "run-1", exact=False)
    (tmp_path / "now" / "job.json").write_text("half a lin")
    assert claim_job_directory(tmp_path, "now", "run-1", exact=False).name == "now-2"


def test_only_the_marker_is_left_in_it(tmp_path: Path) -> None:
    directory = claim_job_directory(tmp_path, "now", "run-1", exact=False)
    claim_job_directory(tmp_path, "now", "run-1", exact=False)
    assert [path.name for path in directory.iterdir()] == ["job.json"]


def test_processes_that_claim_at_once_agree(tmp_path: Path) -> None:
    def claim(run_id: str) -> str:
        command = [sys.executable, "-c", CLAIM, str(tmp_path), run_id]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    with ThreadPoolExecutor(4) as pool:
        names = list(pool.map(claim, ["a", "b", "a", "b"]))
    assert names[0] == names[2]
    assert names[1] == names[3]
    assert {names[0], names[1]} == {"now", "now-2"}
