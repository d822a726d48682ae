"""What pytest is told about a result: the outcome, and one line that says where to look."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_benchflow.agents import AgentOutcome
from pytest_benchflow.core.errors import Category
from pytest_benchflow.plugin.controller import note_lines
from pytest_benchflow.plugin.outcome import judge
from pytest_benchflow.rollout import ErrorInfo, RolloutResult
from pytest_benchflow.rollout.result import CheckSummary

BROKEN = ErrorInfo(category=Category.BUILD, phase="start", message="RUN false ended with status 1")


def result(**facts: object) -> RolloutResult:
    return RolloutResult.model_validate(
        {
            "task_name": "hello",
            "task_path": "tasks/hello",
            "rollout_name": "hello__1a2b3c4d",
            "agent": "nop",
            "sandbox": "local",
            "threshold": 1.0,
            "started_at": "2026-01-01T00:00:00.000+00:00",
            "finished_at": "2026-01-01T00:00:01.000+00:00",
            **facts,
        }
    )


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"reward": 1.0}, "passed"),
        ({"reward": 2.0}, "passed"),
        ({"reward": 0.99}, "failed"),
        ({"reward": 0.0}, "failed"),
        ({"reward": -1.0, "threshold": -2.0}, "passed"),
        ({"reward": 0.5, "threshold": 0.5}, "passed"),
        ({"reward": 0.5, "agent_outcome": AgentOutcome.TIMED_OUT, "threshold": 0.5}, "passed"),
        ({"reward": 0.5, "agent_outcome": AgentOutcome.CRASHED}, "failed"),
        ({"error": BROKEN}, "error"),
        ({"reward": 1.0, "error": BROKEN}, "error"),
        ({"skipped": "no oracle solution"}, "skipped"),
    ],
)
def test_the_result_decides_the_outcome(facts: dict[str, object], kind: str) -> None:
    assert judge(result(**facts)).kind == kind
    assert result(**facts).status == kind


def test_a_result_with_neither_reward_nor_error_is_an_error() -> None:
    assert result().status == "error"
    assert not result().passed
    assert judge(result()).kind == "error"


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"reward": 1.0}, "failed"),
        ({"reward": 0.0}, "passed"),
        ({"error": BROKEN}, "error"),
        ({"skipped": "why"}, "skipped"),
    ],
)
def test_an_agent_that_must_fail_fails_by_passing(facts: dict[str, object], kind: str) -> None:
    assert judge(result(**facts), must_fail=True).kind == kind


def test_a_failure_says_reward_checks_and_place_in_one_line() -> None:
    text = judge(
        result(
            reward=0.25,
            checks=CheckSummary(passed=2, failed=2, failing=["test_sorted", "test_empty"]),
            rollout_dir=Path("jobs/now/hello__1a2b3c4d"),
        )
    ).text
    assert text == (
        "reward 0.25 is below 1.00 · 2 of 4 checks passed · failing: test_sorted, test_empty · jobs/now/hello__1a2b3c4d"
    )


def test_a_failure_names_a_few_checks_and_counts_the_rest() -> None:
    checks = CheckSummary(passed=0, failed=8, failing=[f"t{n}" for n in range(8)])
    assert "failing: t0, t1, t2, t3, t4 and 3 more" in judge(result(reward=0.0, checks=checks)).text


def test_a_reward_just_below_the_threshold_is_not_shown_as_equal_to_it() -> None:
    text = judge(result(reward=0.999, threshold=1.0)).text
    assert not text.startswith("reward 1.00 is below 1.00")


def test_an_error_says_category_phase_and_place() -> None:
    text = judge(result(error=BROKEN, rollout_dir=Path("jobs/x"))).text
    assert text == "build error in start: RUN false ended with status 1 · jobs/x"


def test_only_errors_of_verifier_reward_and_judge_are_verifier_errors() -> None:
    def error_of(category: Category) -> str | None:
        return result(error=ErrorInfo(category=category, phase="verify", message="why")).verifier_error

    said = {category for category in Category if error_of(category) is not None}
    assert said == {Category.VERIFIER, Category.REWARD, Category.JUDGE}


def test_notes_that_are_not_shown_are_counted() -> None:
    notes = [f"note {number}" for number in range(12)]
    assert note_lines(notes[:10]) == [f"note: {note}" for note in notes[:10]]
    assert note_lines(notes)[9:] == ["note: note 9", "note: 2 more in the result.json of the rollouts"]
