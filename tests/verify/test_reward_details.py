"""Criteria that a verifier explains its reward with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_benchflow.verify.reward_details import read_criteria

CRITERION = {"name": "clear", "value": 0.75, "raw": 4, "weight": 2.0, "reasoning": "mostly"}
REWARDKIT = {
    "reward": {
        "score": 0.9,
        "components": [
            {"name": "checks", "weight": 1.0, "detail": {"score": 1.0, "criteria": [{**CRITERION, "raw": True}]}},
            {
                "name": "quality",
                "weight": 1.0,
                "detail": {"kind": "llm", "criteria": [{**CRITERION, "samples": [4, 4, 2], "agreement": 0.8}]},
            },
        ],
    }
}


def test_rewardkits_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "reward-details.json").write_text(json.dumps(REWARDKIT))
    first, second = read_criteria(tmp_path)
    assert (first.name, first.value, first.raw, first.weight, first.reason) == ("clear", 0.75, True, 2.0, "mostly")
    assert (second.name, second.samples, second.agreement) == ("clear_2", (4.0, 4.0, 2.0), 0.8)


def test_several_rewards_name_their_criteria(tmp_path: Path) -> None:
    both = {"style": {"criteria": [CRITERION]}, "truth": [{"criteria": [CRITERION]}]}
    (tmp_path / "reward-details.json").write_text(json.dumps(both))
    assert [each.name for each in read_criteria(tmp_path)] == ["style.clear", "truth.clear"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        '{"reward": {"criteria": [',
        '{"reward": {"criteria": [{"name": "x", "value": NaN}, {"value": "1"}, {"value": true}, 7]}}',
        '{"reward": {"criteria": [{"name": "x", "value": 1' + "0" * 400 + "}]}}",
        "[" * 100_000,
    ],
)
def test_what_cannot_be_read_explains_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "reward-details.json").write_text(text)
    assert read_criteria(tmp_path) == ()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps(REWARDKIT))
    (tmp_path / "reward-details.json").symlink_to("other.json")
    assert read_criteria(tmp_path) == ()
