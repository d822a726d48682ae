"""Intervals around rates and means, chances over several trials."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations, product

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.jobs import (
    mean,
    mean_interval,
    pass_all_k,
    pass_at_k,
    percentile,
    rate_interval,
    wilson_interval,
)
from pytest_benchflow.jobs.statistics import (
    chance_variance,
    dealt_trials,
    fisher,
    holm,
    mcnemar,
    paired_interval,
    paired_rate_interval,
    sign_flips,
    t_quantile,
)


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


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (19, 2.0930), (5000, 1.96)]
)
def test_quantiles_of_student_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=1e-4)


def drawn(chance: random.Random, kind: str, tasks: int, trials: int) -> list[list[float]]:
    """Return rewards of a benchmark whose tasks are drawn from some population of tasks."""
    difficulty = {"mixed": (0.6, 0.4), "easy": (9, 1), "partial": (1, 1)}
    benchmark = []
    for _ in range(tasks):
        rate = float(chance.random() < 0.3) if kind == "all or nothing" else chance.betavariate(*difficulty[kind])
        checks = 4 if kind == "partial" else 1
        benchmark.append([sum(chance.random() < rate for _ in range(checks)) / checks for _ in range(trials)])
    return benchmark


MEANS = {"mixed": 0.6, "easy": 0.9, "partial": 0.5, "all or nothing": 0.3}
DESIGNS = [(tasks, trials) for tasks in (3, 5, 10, 20) for trials in (1, 3)]


@pytest.mark.parametrize("kind", MEANS)
def test_the_interval_of_the_mean_covers_the_mean_of_the_population(kind: str) -> None:
    covered = {design: coverage(kind, *design, mean_interval) for design in DESIGNS}
    assert min(covered.values()) >= 0.925, covered


@pytest.mark.parametrize("kind", ["mixed", "easy", "all or nothing"])
def test_the_interval_of_the_pass_rate_covers_that_of_the_population(kind: str) -> None:
    def interval(benchmark: list[list[float]]) -> tuple[float, float] | None:
        return rate_interval([(int(sum(task)), len(task)) for task in benchmark])

    covered = {design: coverage(kind, *design, interval) for design in DESIGNS}
    assert min(covered.values()) >= 0.905, covered  # Wilson's own: it is 0.92 on ten tasks with a rate of 0.3


def coverage(
    kind: str, tasks: int, trials: int, interval: Callable[[list[list[float]]], tuple[float, float] | None]
) -> float:
    chance, runs, covered = random.Random(f"{kind} {tasks} {trials}"), 800, 0
    for _ in range(runs):
        low, high = interval(drawn(chance, kind, tasks, trials)) or (1.0, 0.0)
        covered += low - 1e-9 <= MEANS[kind] <= high + 1e-9
    return covered / runs


def test_trials_of_tasks_that_differ_count_less_than_those_of_tasks_that_are_alike() -> None:
    alike, different = [(2, 4)] * 10, [(4, 4)] * 5 + [(0, 4)] * 5
    widths = [high - low for low, high in filter(None, map(rate_interval, (alike, different)))]
    assert widths[0] < widths[1]
    assert rate_interval(different) == pytest.approx(wilson_interval(5, 10))


def test_one_task_has_the_interval_of_its_trials_and_says_nothing_of_the_mean_over_tasks() -> None:
    assert rate_interval([(3, 4)]) == wilson_interval(3, 4)
    assert mean_interval([[0.4, 0.6]]) == (0.0, 1.0)
    assert mean_interval([[], []]) is None
    assert rate_interval([(0, 0)]) is None


@given(st.lists(st.lists(st.floats(-5, 5), max_size=4), min_size=1, max_size=6))
def test_the_interval_of_the_mean_holds_it_and_stays_within_the_scale(tasks: list[list[float]]) -> None:
    values = [value for task in tasks for value in task]
    interval = mean_interval(tasks)
    if not values:
        assert interval is None
    else:
        assert interval is not None
        low, high = interval
        assert min(0.0, *values) <= low <= sum(values) / len(values) + 1e-9
        assert sum(values) / len(values) - 1e-9 <= high <= max(1.0, *values)


@pytest.mark.parametrize(("worse", "better", "p"), [(0, 0, 1.0), (0, 5, 0.0625), (1, 8, 0.0390625), (6, 0, 0.03125)])
def test_mcnemar_is_exact(worse: int, better: int, p: float) -> None:
    assert mcnemar(worse, better) == pytest.approx(p)


def test_flipped_signs_agree_with_every_one_of_them_counted() -> None:
    differences = [0.5, -0.25, 0.5, 1.0, 0.0]
    sums = [sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in product((1, -1), repeat=5)]
    assert sign_flips(differences) == (sum(abs(each) >= 1.75 for each in sums) / 32, True)
    assert sign_flips([0.0, 0.0]) == (1.0, True)


def test_many_different_rewards_are_sampled_and_the_same_each_time() -> None:
    chance = random.Random(1)
    differences = [chance.gauss(0.2, 1) for _ in range(40)]
    p, exact = sign_flips(differences)
    assert not exact
    assert (p, exact) == sign_flips(differences)
    assert 0 < p < 0.2


def test_dealt_trials_agree_with_every_way_to_deal_them() -> None:
    pairs = [([1.0], [0.0, 0.5, 0.5], 1.0), ([0.0, 1.0], [1.0], 0.5), ([1.0], [0.25, 0.0], 0.5)]

    def differences(before: list[float], after: list[float], weight: float) -> list[float]:
        values = [*before, *after]
        dealt = (sum(each) for each in combinations(values, len(after)))
        return [weight * (new / len(after) - (sum(values) - new) / len(before)) for new in dealt]

    sums = [abs(sum(one)) for one in product(*(differences(*pair) for pair in pairs))]
    observed = abs(sum(w * (sum(new) / len(new) - sum(old) / len(old)) for old, new, w in pairs))
    p, exact = dealt_trials(pairs)
    assert exact
    assert p == pytest.approx(sum(each >= observed - 1e-9 for each in sums) / len(sums))


@pytest.mark.parametrize(("tasks", "rate"), [(8, 0.1), (12, 0.9), (20, 0.9)])
def test_runs_of_one_and_of_ten_trials_differ_by_chance_no_more_often_than_is_said(tasks: int, rate: float) -> None:
    chance, errors, runs = random.Random(tasks), 0, 300
    for _ in range(runs):
        trials = [[float(chance.random() < rate) for _ in range(11)] for _ in range(tasks)]
        errors += dealt_trials([(each[:10], each[10:], 1.0) for each in trials])[0] < 0.05
    assert errors / runs <= 0.06


def test_too_many_ways_to_deal_trials_are_sampled_and_the_same_each_time() -> None:
    chance = random.Random(2)
    pairs = [([chance.random() for _ in range(12)], [chance.random() for _ in range(9)], 1.0) for _ in range(3)]
    p, exact = dealt_trials(pairs)
    assert not exact
    assert (p, exact) == dealt_trials(pairs)
    assert 0.05 < p < 1


@pytest.mark.parametrize(
    ("before", "after", "p"), [((8, 10), (2, 10), 0.02301), ((1, 1), (0, 1), 1.0), ((5, 5), (0, 5), 0.00794)]
)
def test_fisher_is_exact(before: tuple[int, int], after: tuple[int, int], p: float) -> None:
    assert fisher(before, after) == pytest.approx(p, abs=1e-4)


def test_holm_allows_for_how_many_tests_there_are() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@pytest.mark.parametrize("tasks", [3, 5, 10, 20])
@pytest.mark.parametrize("trials", [1, 3])
def test_the_interval_of_a_difference_covers_it(tasks: int, trials: int) -> None:
    chance, covered, runs = random.Random(f"{tasks} {trials}"), 0, 600
    for _ in range(runs):
        pairs = []
        for _ in range(tasks):
            rate = chance.betavariate(0.8, 0.8)
            better = rate + 0.3 * (1 - rate)
            pairs.append([[float(chance.random() < p) for _ in range(trials)] for p in (rate, better)])
        differences = [(sum(after) - sum(before)) / trials for before, after in pairs]
        if trials == 1:
            low, high = paired_rate_interval(differences.count(-1.0), differences.count(1.0), tasks)
        else:
            floors = [chance_variance(before) + chance_variance(after) for before, after in pairs]
            low, high = paired_interval(differences, floors) or (1.0, 0.0)
        covered += low <= 0.15 <= high
    assert covered / runs >= 0.93


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
