"""Results of rollouts, made up for tests."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_benchflow.core.errors import Category
from pytest_benchflow.rollout import ErrorInfo, RolloutResult

START = "2026-01-01T12:00:00.000+00:00"


def result(
    task: str = "hello",
    reward: float | None = 1.0,
    *,
    category: Category | None = None,
    retryable: bool = False,
    seconds: int = 10,
    **more: object,
) -> RolloutResult:
    """Return a result; one with a category is an error."""
    error = category and ErrorInfo(category=category, phase="start", message=f"{category} broke", retryable=retryable)
    fields: dict[str, object] = {
        "task_name": task,
        "task_path": f"/tasks/{task}",
        "rollout_name": f"{task}__1",
        "agent": "gemini",
        "model": "flash",
        "sandbox": "local",
        "threshold": 1.0,
        "reward": None if error else reward,
        "rewards": None if error or reward is None else {"reward": reward},
        "error": error,
        "started_at": START,
        "finished_at": f"2026-01-01T12:00:{seconds:02}.000+00:00",
    }
    return RolloutResult.model_validate({**fields, **more})


def write_result(directory: Path, given: RolloutResult) -> Path:
    """Write a result the way a rollout does."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "result.json"
    path.write_text(json.dumps(given.model_dump(mode="json")))
    return path
