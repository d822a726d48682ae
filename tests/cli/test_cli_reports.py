"""`bf report`, `bf view` and `bf compare`."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.results import result, write_result

from pytest_benchflow.cli.main import main


def test_a_job_becomes_a_page_beside_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_result(tmp_path / "jobs/monday/hello__1", result())
    monkeypatch.chdir(tmp_path)
    assert main(["report", "jobs/monday"]) == 0
    assert capsys.readouterr().out == "monday.html: 1 rollout\n"
    assert main(["report", "jobs/monday", "-o", "pages/x.html"]) == 0
    assert Path("pages/x.html").read_text().startswith("<!doctype html>")


def test_what_is_no_job_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert (
        capsys.readouterr().err
        == f"there is no result in {tmp_path}; name a job, a folder of jobs or a --bf-json file\n"
    )
    write_result(tmp_path / "job/hello__1", result())
    assert main(["report", str(tmp_path / "job"), "-o", "/proc/x.html"]) == 2
    assert capsys.readouterr().err == "/proc/x.html cannot be written: No such file or directory\n"
