"""The configuration of a rollout: what of it may be written down, and the names that derive from it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from pytest_benchflow.rollout import RolloutConfig


def config(**more: object) -> RolloutConfig:
    return RolloutConfig(task_path=Path("tasks/hello"), **more)  # type: ignore[arg-type]


def test_environment_values_are_never_public() -> None:
    secret = config(agent_env={"TOKEN": "s3cret"}, verifier_env={"KEY": "also-s3cret"})
    text = json.dumps(secret.public())
    assert "s3cret" not in text
    assert secret.public()["agent_env"] == ["TOKEN"]
    assert secret.public()["verifier_env"] == ["KEY"]


def test_every_field_that_decides_the_rollout_is_public() -> None:
    places = {"jobs_dir", "job_name", "rollout_name"}
    assert set(config().public()) == {field.name for field in dataclasses.fields(RolloutConfig)} - places


def test_a_name_is_the_task_and_eight_hex_digits() -> None:
    assert re.fullmatch("hello__[0-9a-f]{8}", config(key="a").name_for("hello"))


def test_the_same_rollout_has_the_same_name() -> None:
    assert config(key="a").name_for("hello") == config(key="a", threshold=0.5).name_for("hello")


@pytest.mark.parametrize("other", [{"agent": "nop"}, {"model": "m"}, {"trial": 2}, {"key": "b"}])
def test_other_rollouts_have_other_names(other: dict[str, object]) -> None:
    assert config().name_for("hello") != config(**other).name_for("hello")


def test_every_attempt_has_a_name_of_its_own() -> None:
    assert config(key="a").name_for("hello", 1) != config(key="a").name_for("hello", 2)
    assert config(rollout_name="mine").name_for("hello", 1) == "mine"
    assert config(rollout_name="mine").name_for("hello", 2) == "mine-2"


@pytest.mark.parametrize("name", ["x" * 500, "日" * 80, "\U00020000" * 64])
def test_a_long_task_name_still_fits_a_directory_name(name: str) -> None:
    assert len(config().name_for(name).encode()) < 128


@pytest.mark.parametrize(
    ("name", "word"), [("a b", "a-b"), ("a::b", "a-b"), ("\x1b[31mred\n", "-31mred-"), ("ünï-1.5+x", "ünï-1.5+x")]
)
def test_a_task_name_becomes_a_word_that_does_no_harm(name: str, word: str) -> None:
    assert config().name_for(name).rpartition("__")[0] == word


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("threshold", "x", "threshold is 'x'; give a number"),
        ("threshold", float("nan"), "threshold is nan; give a number"),
        ("threshold", None, "threshold is None; give a number"),
        ("timeout", 0, "timeout is 0; give a number above 0"),
        ("timeout", "10m", "timeout is '10m'; give a number above 0"),
        ("timeout_multiplier", -1, "timeout_multiplier is -1; give a number above 0"),
        ("sandbox_setup_timeout", True, "sandbox_setup_timeout is True; give a number above 0"),
    ],
)
def test_a_number_that_is_none_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        config(**{field: value})
    assert str(caught.value) == message
