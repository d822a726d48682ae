"""Rewards in Python: the documented examples, and what keeps a rubric from giving a reward."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

import pytest_benchflow as bf
from pytest_benchflow import (
    CodeExecRewardFunc,
    RewardEvent,
    RewardFunc,
    Rubric,
    StringMatchRewardFunc,
    TestRewardFunc,
    VerifyResult,
)


def left(directory: Path, **files: str) -> Path:
    """Write files as a verifier and an agent leave them."""
    for name, text in files.items():
        path = directory / name.replace("__", "/").replace("_txt", ".txt").replace("_json", ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


async def test_the_documented_example(tmp_path: Path) -> None:
    left(tmp_path, reward_txt="1.0\n", answer_txt="hello world\n")
    rubric = Rubric(
        reward_funcs=[TestRewardFunc(), StringMatchRewardFunc(expected="hello world")],
        weights=[0.7, 0.3],
    )
    result = await rubric.score(rollout_dir=tmp_path)
    assert result.reward == pytest.approx(1.0)
    assert result.items == {"TestRewardFunc": 1.0, "StringMatchRewardFunc": 1.0}
    assert result.error is None
    assert [(event.type, event.reward, event.source) for event in result.events] == [
        ("terminal", 1.0, "TestRewardFunc"),
        ("terminal", 1.0, "StringMatchRewardFunc"),
    ]


async def test_functions_of_ones_own_are_numbered(tmp_path: Path) -> None:
    class Length:
        async def score(self, rollout_dir: Path) -> float:
            return min(1.0, len((rollout_dir / "answer.txt").read_text()) / 10)

    left(tmp_path, answer_txt="12345")
    assert isinstance(Length(), RewardFunc)
    assert (await Rubric([Length(), Length(), Length()]).score(tmp_path)).items == {
        "Length": 0.5,
        "Length_1": 0.5,
        "Length_2": 0.5,
    }


def test_types_have_the_documented_shape() -> None:
    event = RewardEvent("dense", 0.5, "judge", 3)
    assert (event.type, event.reward, event.source, event.step) == ("dense", 0.5, "judge", 3)
    assert (event.space, event.granularity) == ("output", "terminal")
    assert event.ts
    result = VerifyResult(reward=0.5)
    assert (result.items, result.events, result.error, result.space) == ({}, [], None, "output")
    assert not getattr(TestRewardFunc, "__test__")  # noqa: B009 - pytest looks it up like this


@pytest.mark.parametrize(
    ("files", "reward"),
    [
        ({"reward_txt": "0.25"}, 0.25),
        ({"reward_json": '{"a": 1, "b": 0}'}, 0.5),
        ({"verifier__reward_txt": "0.5"}, 0.5),
    ],
)
async def test_a_verifiers_reward_is_found_where_verifiers_leave_it(
    tmp_path: Path, files: dict[str, str], reward: float
) -> None:
    assert await TestRewardFunc().score(left(tmp_path, **files)) == reward


@pytest.mark.parametrize(
    ("function", "files", "words"),
    [
        (TestRewardFunc(), {}, "there is no reward.json or reward.txt in"),
        (TestRewardFunc(), {"reward_txt": "nan"}, "reward.txt is nan"),
        (TestRewardFunc(), {"reward_txt": ""}, "reward.txt is empty"),
        (TestRewardFunc(), {"reward_json": '{"reward": true}'}, "reward is a boolean"),
        (StringMatchRewardFunc("x"), {}, "there is no answer.txt in"),
        (CodeExecRewardFunc(lambda path: 1 / 0), {}, "ZeroDivisionError"),
        (CodeExecRewardFunc(lambda path: math.nan), {}, "its score is nan"),
        (CodeExecRewardFunc(lambda path: None), {}, "its score is None"),  # type: ignore[arg-type, return-value]
        (CodeExecRewardFunc(lambda path: "1.0"), {}, "its score is '1.0'"),  # type: ignore[arg-type, return-value]
    ],
)
async def test_what_fails_or_is_missing_is_an_error_and_no_zero(
    tmp_path: Path, function: RewardFunc, files: dict[str, str], words: str
) -> None:
    left(tmp_path, **files)
    result = await Rubric([CodeExecRewardFunc(lambda path: 1.0), function]).score(tmp_path)
    assert result.reward is None
    assert result.error is not None
    assert words in result.error
    assert result.items == {"CodeExecRewardFunc": 1.0}
    with pytest.raises(bf.VerifierError, match=r"."):
        result.require()


async def test_missing_files_count_what_they_are_said_to(tmp_path: Path) -> None:
    assert await TestRewardFunc(missing=0.0).score(tmp_path) == 0.0
    assert await StringMatchRewardFunc("x", missing=0.5).score(tmp_path) == 0.5


@pytest.mark.parametrize(
    ("answer", "fuzzy", "score"),
    [("Hello\n", False, 0.0), ("hello\n", False, 1.0), ("well, HELLO you", True, 1.0), ("bye", True, 0.0)],
)
async def test_strings_match(tmp_path: Path, answer: str, fuzzy: bool, score: float) -> None:
    assert await StringMatchRewardFunc("hello", fuzzy).score(left(tmp_path, answer_txt=answer)) == score


async def test_code_may_be_slow_and_asynchronous(tmp_path: Path) -> None:
    async def check(path: Path) -> float:
        await asyncio.sleep(0)
        return 0.75

    assert await CodeExecRewardFunc(check).score(tmp_path) == 0.75
    assert await CodeExecRewardFunc(lambda path: path.is_dir()).score(tmp_path) is True
    assert (await Rubric([CodeExecRewardFunc(Path.is_dir)]).score(tmp_path)).reward == 1.0


def one(path: Path) -> float:
    return 1.0


async def test_weights_count_as_given_and_are_normalised_when_asked(tmp_path: Path) -> None:
    functions = [CodeExecRewardFunc(one), CodeExecRewardFunc(lambda path: 0.5)]
    assert (await Rubric(functions, [0.5, 0.25]).score(tmp_path)).reward == pytest.approx(0.625)
    assert (await Rubric(functions, [3, 1], normalize=True).score(tmp_path)).reward == pytest.approx(0.875)
    assert (await Rubric(functions, [2, 1], reward_range=(0, 3)).score(tmp_path)).reward == pytest.approx(2.5)
    assert (await Rubric(functions).score(tmp_path)).reward == pytest.approx(0.75)
    too_much = await Rubric(functions, [2, 1]).score(tmp_path)
    assert too_much.reward is None
    assert "the weights [2, 1] give 2.5, outside [0, 1]; pass normalize=True" in str(too_much.error)


@pytest.mark.parametrize(
    ("weights", "words"),
    [([1.0], "1 weights for 2 reward functions"), ([1, math.inf], "inf is not a finite"), ([True, 1], "True is not")],
)
def test_weights_that_do_not_fit_are_refused(weights: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Rubric([CodeExecRewardFunc(one)] * 2, weights)


async def test_a_rubric_of_nothing_scores_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without reward functions"):
        await Rubric([]).score(tmp_path)
