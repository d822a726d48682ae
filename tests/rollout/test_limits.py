"""How long agents may take, and when a rollout is given up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_benchflow.rollout import Role, RolloutConfig
from pytest_benchflow.rollout.config import hard_deadline, prompt_limit
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
    assert prompt_limit(role, task, task.steps[0], settings) == limit


HOOK = '[[verifier.collect]]\ncommand = "x"\ntimeout_sec = 900\n'
SETUP = '[[environment.setup_commands]]\ncommand = "x"\ntimeout_sec = 800\n'
OWN = "[verifier.environment]\nbuild_timeout_sec = 500\n"


@pytest.mark.parametrize(
    ("more", "agent", "rounds", "wanted"),
    [
        ("", "oracle", None, 7000 + 600),
        ("", "gemini", None, 100 + 600),
        ("", "gemini", 3, 3 * (100 + 600) + 600),
        (HOOK, "oracle", None, 7000 + 900 + 600),
        (SETUP, "oracle", None, 800 + 7000 + 600),
        (OWN + SETUP, "oracle", None, 800 + 7000 + 500 + 600),
    ],
    ids=["oracle", "agent", "rounds", "hook", "setup", "own environment"],
)
def test_a_rollout_is_given_up_only_when_all_its_parts_are_over_time(
    make_task: Callable[..., Path], more: str, agent: str, rounds: int | None, wanted: float
) -> None:
    task = load_task(make_task(toml=BOTH + more))
    config = RolloutConfig(task_path=task.path, agent=agent)
    build, margin = 600 + config.sandbox_setup_timeout, 1800
    assert hard_deadline(task, config, config.effective_scenes, rounds) == build + wanted + margin
