"""`bf report`, `bf view` and `bf compare`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
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
    said = f"bf: there is no result in {tmp_path}; name a job, a folder of jobs or a --bf-json file\n"
    assert capsys.readouterr().err == said
    write_result(tmp_path / "job/hello__1", result())
    assert main(["report", str(tmp_path / "job"), "-o", "/proc/x.html"]) == 2
    assert capsys.readouterr().err == (
        "bf: /proc/x.html cannot be written: No such file or directory; choose another file\n"
    )
    assert main(["view", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.endswith("none is not a directory; name a job, or a folder of jobs\n")


def test_the_viewer_says_where_it_is_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    write_result(tmp_path / "jobs/monday/hello__1", result())
    words = [str(Path(sys.executable).with_name("bf")), "view", str(tmp_path / "jobs"), "--port", "0"]
    viewer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert viewer.stdout is not None
    url = viewer.stdout.readline().split()[0]
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}overview.json", timeout=30) as answer:
        assert json.load(answer)["jobs"][0]["name"] == "monday"
    viewer.send_signal(signal.SIGINT)
    _, err = viewer.communicate(timeout=30)
    assert (viewer.returncode, err.strip()) == (0, "")
