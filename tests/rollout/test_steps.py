"""When a multi-step task goes on, and what its steps are worth together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pytest_benchflow.rollout.result import combine_steps, reaches_minimum


@pytest.mark.parametrize(
    ("rewards", "minimum", "goes_on"),
    [
        ({"reward": 0.0}, None, True),
        ({"reward": 1.0}, 1.0, True),
        ({"reward": 0.5}, 0.5, True),
        ({"reward": 0.49}, 0.5, False),
        ({"reward": -1.0}, -2.0, True),
        ({"other": 1.0}, 0.5, False),
        ({"other": 1.0}, -5.0, False),
        ({"a": 1.0, "b": 0.2}, {"a": 1.0}, True),
        ({"a": 1.0, "b": 0.2}, {"a": 1.0, "b": 0.3}, False),
        ({"a": 1.0}, {"a": 1.0, "b": 0.0}, False),
        ({"a": 1.0}, {}, True),
        ({"reward": 0.0}, 0.0, True),
    ],
)
def test_a_step_must_reach_its_minimum(
    rewards: Mapping[str, float], minimum: float | Mapping[str, float] | None, goes_on: bool
) -> None:
    assert reaches_minimum(rewards, minimum) is goes_on


@pytest.mark.parametrize(
    ("steps", "strategy", "rewards"),
    [
        ([{"reward": 1.0}, {"reward": 0.0}], "mean", {"reward": 0.5}),
        ([{"reward": 1.0}, {"reward": 0.0}], None, {"reward": 0.5}),
        ([{"reward": 1.0}, {"reward": 0.0}], "final", {"reward": 0.0}),
        ([{"reward": 1.0}], "mean", {"reward": 1.0}),
        ([{"reward": 1.0, "a": 1.0}, {"reward": 1.0}], "mean", {"reward": 1.0, "a": 0.5}),
        ([{"a": 1.0}, {"b": 1.0}], "mean", {"a": 0.5, "b": 0.5}),
        ([{"a": 1.0}, {"b": 1.0}], "final", {"b": 1.0}),
        ([{"reward": 0.1}] * 10, "mean", {"reward": 0.1}),
    ],
)
def test_steps_are_combined_key_by_key(
    steps: list[dict[str, float]], strategy: str | None, rewards: dict[str, float]
) -> None:
    assert combine_steps(steps, strategy) == pytest.approx(rewards)  # type: ignore[arg-type]
