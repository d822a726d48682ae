"""The report of a run as a file."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from pytest_benchflow.reporting import Report, write_report

REPORT = Report(
    tool_version="0", started_at="now", finished_at="then", exit_status=0, job_dir=None, summary=[], rollouts=[]
)


@pytest.mark.parametrize("before", [None, "older"])
def test_a_report_is_written_through_a_link(tmp_path: Path, before: str | None) -> None:
    file, link = tmp_path / "reports/r.json", tmp_path / "r.json"
    link.symlink_to(file)
    if before is not None:
        file.parent.mkdir()
        file.write_text(before)
    write_report(REPORT, link)
    assert link.is_symlink()
    assert json.loads(file.read_text())["tool_version"] == "0"
    assert [path.name for path in file.parent.iterdir()] == ["r.json"]


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    write_report(REPORT, link)
    assert link.is_symlink()
    assert stat.S_ISCHR(link.stat().st_mode)
