"""Reports of what is on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs.results import result, write_result

from pytest_benchflow.core.errors import Category, UsageError
from pytest_benchflow.reporting import read_report, write_report


def test_the_results_of_a_job_make_a_report_with_the_last_attempt_of_each(tmp_path: Path) -> None:
    for name, given in {
        "a__1": result("a", rollout_name="a__1", key="a", category=Category.SANDBOX),
        "a__2": result("a", rollout_name="a__2", key="a"),
        "b__1": result("b", 0.0, rollout_name="b__1", key="b", agent="codex"),
    }.items():
        write_result(tmp_path / name, given)
    report = read_report(tmp_path)
    assert [(entry.id, entry.status) for entry in report.rollouts] == [("a", "passed"), ("b", "failed")]
    assert [(each.agent, each.passed) for each in report.summary] == [("gemini", 1), ("codex", 0)]
    assert report.exit_status is None
    assert report.job_dir == str(tmp_path)


def test_a_written_report_is_read_back(tmp_path: Path) -> None:
    write_result(tmp_path / "job/a__1", result("a"))
    report = read_report(tmp_path / "job")
    write_report(report, tmp_path / "r.json")
    assert read_report(tmp_path / "r.json") == report


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "is not JSON"),
        (json.dumps({"schema_version": "1.0"}), "is not a report: tool_version: Field required"),
        ("[]", "is not a report: the whole file"),
    ],
)
def test_what_is_not_a_report_is_told_with_its_place(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "r.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_report(file)


def test_a_directory_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no result in"):
        read_report(tmp_path)


def test_rollouts_stand_in_one_order_whatever_their_directories_are_called(tmp_path: Path) -> None:
    rollouts = [("a", "codex", 1), ("a", "gemini", 1), ("a", "gemini", 2), ("b", "codex", 1)]
    for name, (task, agent, trial) in zip(("4", "3", "1", "2"), rollouts, strict=True):
        write_result(tmp_path / f"x__{name}", result(task, agent=agent, trial=trial, rollout_name=f"x__{name}"))
    order = [(each.result.task_name, each.result.agent, each.result.trial) for each in read_report(tmp_path).rollouts]
    assert order == rollouts
