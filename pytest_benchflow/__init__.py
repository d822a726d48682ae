"""Agent benchmark tasks as pytest items, and the plain asyncio library underneath.

import pytest_benchflow as bf

result = await bf.run("oracle", task_path="tasks/hello-world")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchflow.rollout import Rollout, RolloutConfig, RolloutResult, run
    from pytest_benchflow.tasks import Task, TaskError, load_task

_HOMES = {
    "Rollout": "rollout",
    "RolloutConfig": "rollout",
    "RolloutResult": "rollout",
    "Task": "tasks",
    "TaskError": "tasks",
    "load_task": "tasks",
    "run": "rollout",
}

__all__ = ["Rollout", "RolloutConfig", "RolloutResult", "Task", "TaskError", "load_task", "run"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that the pytest plugin stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
