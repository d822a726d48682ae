"""Metrics from the results on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from results import result, write_result

from pytest_benchflow.core.errors import Category
from pytest_benchflow.jobs import BenchmarkMetrics, collect_metrics, outcome_class

TOKENS = {"input": 100, "output": 10, "cached": 5}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job with one result in every outcome_class."""
    results = {
        "a": result("a", 1.0, n_tool_calls=4, tokens=TOKENS, cost_usd=0.5, seconds=10),
        "b": result("b", 0.25, n_tool_calls=2, tokens={"input": 50}, cost_usd=0.25, seconds=20),
        "c": result("c", category=Category.SANDBOX, seconds=50),
        "d": result("d", category=Category.REWARD, seconds=50),
        "e": result("e", None, skipped="no solution"),
    }
    for name, given in results.items():
        write_result(tmp_path / "job" / name, given)
    return tmp_path


def test_every_rollout_is_in_one_bucket_and_the_buckets_add_up(job: Path) -> None:
    summary = collect_metrics(job, benchmark="demo").summary()
    buckets = [summary[name] for name in ("passed", "failed", "errored", "verifier_errored", "skipped")]
    assert buckets == [1, 1, 1, 1, 1]
    assert sum(buckets) == summary["total"]  # type: ignore[arg-type]
    assert [summary[f"{name}_tasks"] for name in ("passed", "failed", "errored", "verifier_errored")] == [
        ["a"],
        ["b"],
        ["c"],
        ["d"],
    ]


def test_the_summary_says_what_older_ones_said(job: Path) -> None:
    summary = collect_metrics(job, benchmark="demo").summary()
    expected = {
        "benchmark": "demo",
        "agent": "gemini",
        "model": "flash",
        "score": "20.0%",
        "score_ratio": 0.2,
        "score_excl_errors": "50.0%",
        "score_excl_errors_ratio": 0.5,
        "avg_tool_calls": 3.0,
        "avg_duration_sec": 15.0,
        "error_breakdown": {"sandbox": 1},
        "verifier_error_breakdown": {"reward": 1},
        "total_input_tokens": 150,
        "total_output_tokens": 10,
        "total_cache_read_tokens": 5,
        "total_cache_creation_tokens": None,
        "total_tokens": 160,
        "total_cost_usd": 0.75,
        "avg_cost_per_trial_usd": 0.375,
        "telemetry_coverage": 0.4,
    }
    assert {key: summary[key] for key in expected} == expected
    json.dumps(summary)


def test_rates_and_means_are_over_what_was_scored_and_have_intervals(job: Path) -> None:
    summary = collect_metrics(job).summary()
    assert summary["pass_rate"] == 0.5
    assert summary["pass_rate_interval"] == pytest.approx([0.0945, 0.9055], abs=1e-4)
    assert summary["mean_reward"] == 0.625
    assert summary["mean_reward_interval"] == [0.0, 1.0]  # two tasks say next to nothing
    assert summary["duration_sec_percentiles"] == {"p50": 15.0, "p90": 19.0, "p99": pytest.approx(19.9)}


def test_an_empty_directory_gives_empty_metrics(tmp_path: Path) -> None:
    summary = collect_metrics(tmp_path, benchmark="demo", agent="gemini").summary()
    assert summary["total"] == 0
    assert summary["pass_rate"] is None
    assert summary["agent"] == "gemini"
    assert summary["score"] == "0.0%"


def test_broken_files_are_passed_over_and_told(job: Path) -> None:
    (job / "broken").mkdir()
    for text in ("{", "[]", '{"task_name": "x"}'):
        (job / "broken" / "result.json").write_text(text)
        metrics = collect_metrics(job)
        assert len(metrics.results) == 5
        assert metrics.unreadable == (job / "broken/result.json",)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_of_several_attempts_the_scored_and_then_the_newest_counts(tmp_path: Path, order: tuple[int, ...]) -> None:
    attempts = [
        result(reward=0.5, seconds=10),
        result(reward=0.25, seconds=20),
        result(category=Category.SANDBOX, seconds=30),
    ]
    for place, number in enumerate(order):
        write_result(tmp_path / str(place), attempts[number])
    (kept,) = collect_metrics(tmp_path).results
    assert kept.reward == 0.25


def test_trials_are_not_attempts(tmp_path: Path) -> None:
    for trial, reward in enumerate([1.0, 0.0, 1.0, 0.0], 1):
        write_result(tmp_path / str(trial), result(reward=reward, trial=trial))
    metrics = collect_metrics(tmp_path)
    assert metrics.pass_at(1) == 0.5
    assert metrics.pass_at(2) == pytest.approx(5 / 6)
    assert metrics.pass_all(2) == pytest.approx(1 / 6)
    assert metrics.pass_at(5) is None
    summary = metrics.summary()
    assert list(summary["pass_at_k"]) == ["1", "2", "3", "4"]  # type: ignore[arg-type]
    assert summary["by_task"] == {
        "hello": {
            "trials": 4,
            "passed": 2,
            "scored": 4,
            "pass_rate": 0.5,
            "pass_rate_interval": pytest.approx([0.15, 0.85], abs=1e-3),
            "pass_at_k": pytest.approx({"1": 0.5, "2": 5 / 6, "3": 1.0, "4": 1.0}),
            "pass_all_k": pytest.approx({"1": 0.5, "2": 1 / 6, "3": 0.0, "4": 0.0}),
            "mean_reward": 0.5,
            "avg_duration_sec": 10.0,
            "cost_usd": None,
        }
    }


def test_pass_at_k_needs_k_trials_of_every_task() -> None:
    metrics = BenchmarkMetrics((result("a", trial=1), result("a", trial=2), result("b", trial=1)))
    assert metrics.pass_at(1) == 1.0
    assert metrics.pass_at(2) is None


def test_configurations_are_told_apart(tmp_path: Path) -> None:
    write_result(tmp_path / "1", result(reward=1.0, agent="codex", model=None, scene="review"))
    write_result(tmp_path / "2", result(reward=0.0))
    summary = collect_metrics(tmp_path).summary()
    rows = summary["by_configuration"]
    assert [(row["agent"], row["model"], row["scene"], row["passed"]) for row in rows] == [  # type: ignore[index,union-attr,call-overload]
        ("codex", None, "review", 1),
        ("gemini", "flash", None, 0),
    ]


def test_an_agent_is_chosen_or_named(tmp_path: Path) -> None:
    write_result(tmp_path / "1", result(agent="codex"))
    write_result(tmp_path / "2", result())
    assert len(collect_metrics(tmp_path, agent="codex").results) == 1
    labelled = collect_metrics(tmp_path, agent="My agent")
    assert len(labelled.results) == 2
    assert labelled.summary()["agent"] == "My agent"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (result(reward=1.0), "passed"),
        (result(reward=0.9), "failed"),
        (result(reward=0.9, threshold=0.5), "passed"),
        (result(category=Category.VERIFIER), "verifier_errored"),
        (result(category=Category.PROVIDER), "errored"),
        (result(reward=None), "errored"),
    ],
)
def test_a_result_is_counted_once(given: object, name: str) -> None:
    assert outcome_class(given) == name  # type: ignore[arg-type]


def test_each_rollout_has_its_numbers(job: Path) -> None:
    first = collect_metrics(job).tasks[0]
    assert (first.task_name, first.reward, first.duration_sec, first.cost_usd) == ("a", 1.0, 10.0, 0.5)
    errors = {task.task_name: (task.error, task.verifier_error) for task in collect_metrics(job).tasks}
    assert errors["c"] == ("sandbox broke", None)
    assert errors["d"] == (None, "reward broke")
