"""The interval around a pass rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_benchflow.jobs import wilson_interval


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
