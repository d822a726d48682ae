"""Intervals around rates and means, chances over several trials."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.jobs import bootstrap_interval, mean, pass_all_k, pass_at_k, percentile, wilson_interval


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        (1, 1, 0.2065, 1.0),
        (0, 1, 0.0, 0.7935),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (0, 10, 0.0, 0.2775),
        (80, 100, 0.7112, 0.8666),
    ],
)
def test_known_intervals(passed: int, total: int, low: float, high: float) -> None:
    assert wilson_interval(passed, total) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 10_000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_the_rate_is_always_inside_and_the_interval_inside_zero_and_one(counts: tuple[int, int]) -> None:
    passed, total = counts
    low, high = wilson_interval(passed, total)
    assert 0.0 <= low <= passed / total + 1e-12
    assert passed / total - 1e-12 <= high <= 1.0
    assert low < high


def test_the_mean_of_nothing_is_unknown() -> None:
    assert mean([]) is None
    assert mean([0.1] * 10) == 0.1


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([3, 1, 2], 50, 2), ([1, 2], 50, 1.5), ([7], 99, 7), ([0, 10], 90, 9), ([1, 2, 3, 4], 100, 4), ([5, 1], 0, 1)],
)
def test_percentiles_lie_between_the_values(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


def test_the_same_data_give_the_same_bootstrap_interval() -> None:
    clusters = [[n / 37] for n in range(37)]
    assert bootstrap_interval(clusters) == bootstrap_interval(clusters)
    assert bootstrap_interval(clusters) != bootstrap_interval(clusters, seed=1)


def test_nothing_has_no_bootstrap_interval() -> None:
    assert bootstrap_interval([]) is None
    assert bootstrap_interval([[], []]) is None
    assert bootstrap_interval([[0.5]]) == (0.5, 0.5)


def test_the_bootstrap_interval_agrees_with_theory() -> None:
    low, high = bootstrap_interval([[float(n % 2)] for n in range(400)], samples=4000) or (0.0, 0.0)
    half = 1.96 * math.sqrt(0.25 / 400)
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.01)


def test_trials_of_one_task_count_as_one_draw() -> None:
    values = [float(n % 2) for n in range(40)]
    alone = bootstrap_interval([[value] for value in values]) or (0.0, 0.0)
    together = bootstrap_interval([[value] * 4 for value in values[:10]]) or (0.0, 0.0)
    assert together[1] - together[0] > alone[1] - alone[0]


@given(st.lists(st.lists(st.floats(0, 1), max_size=4), min_size=1, max_size=6))
def test_the_bootstrap_interval_stays_within_the_values(clusters: list[list[float]]) -> None:
    values = [value for cluster in clusters for value in cluster]
    interval = bootstrap_interval(clusters, samples=50)
    if not values:
        assert interval is None
    else:
        assert interval is not None
        assert min(values) - 1e-9 <= interval[0] <= interval[1] <= max(values) + 1e-9


@pytest.mark.parametrize(
    ("trials", "passed", "k", "at", "all_"),
    [(1, 1, 1, 1, 1), (1, 0, 1, 0, 0), (4, 2, 1, 0.5, 0.5), (4, 2, 2, 5 / 6, 1 / 6), (5, 1, 5, 1, 0), (3, 3, 2, 1, 1)],
)
def test_chances_over_k_trials(trials: int, passed: int, k: int, at: float, all_: float) -> None:
    assert pass_at_k(trials, passed, k) == pytest.approx(at)
    assert pass_all_k(trials, passed, k) == pytest.approx(all_)


@pytest.mark.parametrize(("trials", "passed", "k"), [(2, 1, 3), (2, 3, 1), (2, 1, 0), (2, -1, 1)])
def test_too_few_trials_say_nothing(trials: int, passed: int, k: int) -> None:
    for measure in (pass_at_k, pass_all_k):
        with pytest.raises(ValueError, match="says nothing about"):
            measure(trials, passed, k)
