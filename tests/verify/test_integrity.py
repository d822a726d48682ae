"""What a user sees of a rollout that tripped a defence."""

from __future__ import annotations

import pytest

from pytest_benchflow.core.text import printable
from pytest_benchflow.plugin.outcome import judge
from pytest_benchflow.rollout import RolloutResult
from pytest_benchflow.verify import Finding, listed_findings

FINDING = Finding(kind="planted_file", message="conftest.py writes the reward; removed", paths=["/app/conftest.py"])


def scored(**more: object) -> RolloutResult:
    base = {"task_name": "t", "task_path": "/t", "rollout_name": "t__1", "agent": "a", "sandbox": "local"}
    times = {"started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:01Z"}
    return RolloutResult.model_validate({**base, **times, "threshold": 1.0, "reward": 1.0, **more})


@pytest.mark.parametrize(
    ("policy", "status"), [("report", "passed"), ("fail", "failed")], ids=["reported only", "failing"]
)
def test_a_tripped_defence_fails_a_rollout_only_if_asked(policy: str, status: str) -> None:
    result = scored(integrity=[FINDING], integrity_policy=policy)
    assert result.status == status
    assert judge(result).kind == status


def test_the_failure_says_which_defence() -> None:
    text = judge(scored(integrity=[FINDING], integrity_policy="fail")).text
    assert "reward 1.00, but a defence was tripped" in text
    assert "conftest.py writes the reward" in text
    assert "is below" in judge(scored(reward=0.0, integrity=[FINDING])).text


def test_only_the_first_findings_are_listed() -> None:
    findings = [FINDING.model_copy(update={"message": f"number {n}"}) for n in range(5)]
    assert listed_findings(findings) == "number 0; number 1; number 2; and 2 more"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::set-output name=a::b", ": :set-output name=a::b"),
        ("ok\n  ::add-mask::x", "ok\n  : :add-mask::x"),
        ("x ##[error]y", "x # #[error]y"),
        ("tests/a.py::test_b", "tests/a.py::test_b"),
    ],
)
def test_foreign_lines_are_no_workflow_commands(text: str, shown: str) -> None:
    assert printable(text) == shown
