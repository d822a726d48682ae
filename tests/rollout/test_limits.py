"""How long agents may take, and when a rollout is given up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_benchflow.rollout import Role, RolloutConfig
from pytest_benchflow.rollout.limits import hard_deadline, prompt_limit
from pytest_benchflow.tasks import load_task

BOTH = "[agent]\ntimeout_sec = 100\n[solution]\ntimeout_sec = 7000\n"


@pytest.mark.parametrize(
    ("toml", "role", "config", "limit"),
    [
        ("", Role("r", "oracle"), {}, None),
        ("[agent]\ntimeout_sec = 100\n", Role("r", "oracle"), {}, 100),
        (BOTH, Role("r", "oracle"), {}, 7000),
        (BOTH, Role("r", "oracle"), {"timeout_multiplier": 2.0}, 14000),
        (BOTH, Role("r", "oracle"), {"timeout": 5.0}, 5),
        (BOTH, Role("r", "oracle", timeout_sec=3), {"timeout": 5.0, "timeout_multiplier": 2.0}, 6),
        (BOTH, Role("r", "gemini"), {}, 100),
    ],
)
def test_the_limit_of_a_prompt(
    make_task: Callable[..., Path], toml: str, role: Role, config: dict[str, float], limit: float | None
) -> None:
    task = load_task(make_task(toml=toml))
    settings = RolloutConfig(task_path=task.path, **config)  # type: ignore[arg-type]
    assert prompt_limit(role, task, task.stages[0], settings) == limit


@pytest.mark.parametrize(("agent", "rounds", "least"), [("oracle", None, 7000), ("gemini", 3, 300)])
def test_a_rollout_is_given_up_only_when_all_its_parts_are_over_time(
    make_task: Callable[..., Path], agent: str, rounds: int | None, least: float
) -> None:
    task = load_task(make_task(toml=BOTH))
    config = RolloutConfig(task_path=task.path, agent=agent)
    others = 600 + 600 * (1 + (rounds or 0)) + config.sandbox_setup_timeout
    assert hard_deadline(task, config, config.effective_scenes, rounds) == least + others + 1800
