"""Outcomes of rollouts, made up for tests of gates and comparisons."""

from __future__ import annotations

from dataclasses import dataclass

from results import result

from pytest_benchflow.core.errors import Category
from pytest_benchflow.rollout import RolloutResult


@dataclass(frozen=True)
class Row:
    """A result and what it counts as."""

    id: str
    status: str
    result: RolloutResult


def row(
    task: str = "a", reward: float | None = 1.0, *, trial: int = 1, status: str | None = None, **more: object
) -> Row:
    """Return an outcome; one without a reward is an error."""
    error = None if reward is not None or "skipped" in more else Category.SANDBOX
    kind = {"category": more.pop("category", None)}
    made = result(task, reward, trial=trial, category=error, **more).model_copy(update=kind)  # type: ignore[arg-type]
    return Row(f"tasks/{task}/task.toml::gemini/{trial}", status or made.status, made)


def rows(rewards: dict[str, list[float | None]], **more: object) -> list[Row]:
    """Return the trials of tasks, by their rewards."""
    return [row(task, value, trial=n, **more) for task, values in rewards.items() for n, value in enumerate(values, 1)]
