"""Every content of reward.txt and reward.json, and what it means."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.core.errors import Category, RewardError
from pytest_benchflow.verify import primary_reward, read_rewards
from pytest_benchflow.verify.rewards import parse_json, parse_txt


def read(directory: Path, *, txt: str | None = None, js: str | None = None) -> dict[str, float]:
    if txt is not None:
        (directory / "reward.txt").write_text(txt)
    if js is not None:
        (directory / "reward.json").write_text(js)
    return read_rewards(directory)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("1", 1.0),
        ("1\n", 1.0),
        (" 0.5 ", 0.5),
        ("1e-3", 0.001),
        ("-3", -3.0),
        ("1_000", 1000.0),
        ("0", 0.0),
        ("-0.0", 0.0),
    ],
)
def test_a_number_in_reward_txt_is_the_reward(tmp_path: Path, text: str, reward: float) -> None:
    assert read(tmp_path, txt=text) == {"reward": reward}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "reward.txt is empty"),
        ("  \n", "reward.txt holds"),
        ("true", "reward.txt holds 'true'"),
        ("1 2", "reward.txt holds '1 2'"),
        ("0x1", "reward.txt holds '0x1'"),
        ("null", "reward.txt holds 'null'"),
        ("[1]", "reward.txt holds '[1]'"),
        ('"1"', "reward.txt holds"),
        ("inf", "reward.txt is inf"),
        ("-inf", "reward.txt is -inf"),
        ("NaN", "reward.txt is nan"),
        ("1e400", "reward.txt is inf"),
        ("-1e308", "reward.txt is -1e+308"),
        ("1\x002", "reward.txt holds"),
        ("x" * 5000, "…"),
    ],
)
def test_anything_else_in_reward_txt_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RewardError) as caught:
        read(tmp_path, txt=text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "rewards"),
    [
        ('{"reward": 1}', {"reward": 1.0}),
        ('{"reward": 1.0}', {"reward": 1.0}),
        ('{"reward": -2}', {"reward": -2.0}),
        ('{"a": 0.2, "b": 1}', {"a": 0.2, "b": 1.0}),
        ('{"reward": 0.25, "speed": 3}\n', {"reward": 0.25, "speed": 3.0}),
    ],
)
def test_numbers_in_reward_json_are_the_rewards(tmp_path: Path, text: str, rewards: dict[str, float]) -> None:
    found = read(tmp_path, js=text)
    assert found == rewards
    assert all(isinstance(value, float) for value in found.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "reward.json is empty"),
        ("   ", "reward.json is not JSON"),
        ("{}", "reward.json holds no key"),
        ("1", "reward.json holds a bare number"),
        ("0.5", "reward.json holds a bare number"),
        ("true", "reward.json holds a boolean"),
        ("null", "reward.json holds null"),
        ('"1"', "reward.json holds a string"),
        ('{"reward": 1, "x": 0, "reward": 0}', "reward.json has the key reward 2 times"),
        ("[1]", "reward.json holds a list"),
        ("[]", "reward.json holds a list"),
        ('{"reward": true}', "reward is a boolean"),
        ('{"reward": false}', "reward is a boolean"),
        ('{"reward": null}', "reward is null"),
        ('{"reward": "1"}', "reward is a string"),
        ('{"reward": [1]}', "reward is a list"),
        ('{"reward": {"a": 1}}', "reward is an object"),
        ('{"reward": 1, "other": null}', "other is null"),
        ('{"reward": NaN}', "reward is nan"),
        ('{"reward": Infinity}', "reward is inf"),
        ('{"reward": -Infinity}', "reward is -inf"),
        ('{"reward": 1e400}', "reward is inf"),
        ('{"reward": 1' + "0" * 400 + "}", "reward"),
        ('{"reward": 1} x', "reward.json is not JSON"),
        ('{"reward": 1', "reward.json is not JSON"),
        ("[" * 100_000, "reward.json is not JSON"),
    ],
)
def test_anything_else_in_reward_json_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RewardError) as caught:
        read(tmp_path, js=text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


M = '"metrics": {"a": 0.5, "b": 1}'


@pytest.mark.parametrize(
    ("text", "policy", "rewards"),
    [
        ('{"reward": 1, "reason": "fine", "items": [1], "rubric": null}', {}, {"reward": 1.0}),
        ('{"reward": 1, "items": 3, "metrics": 2}', {}, {"reward": 1.0, "items": 3.0, "metrics": 2.0}),
        (f'{{"reward": 0.2, {M}}}', {}, {"reward": 0.2, "a": 0.5, "b": 1.0}),
        (f"{{{M}}}", {}, {"a": 0.5, "b": 1.0}),
        (f'{{{M}, "aggregate": {{"method": "mean"}}}}', {}, {"a": 0.5, "b": 1.0, "reward": 0.75}),
        (f'{{{M}, "reward": 0.75, "aggregate": {{"method": "mean"}}}}', {}, {"a": 0.5, "b": 1.0, "reward": 0.75}),
        (f"{{{M}}}", {"method": "weighted-mean", "weights": {"a": 1, "b": 3}}, {"a": 0.5, "b": 1.0, "reward": 0.875}),
        (f"{{{M}}}", {"fallback": "weighted_mean"}, {"a": 0.5, "b": 1.0, "reward": 0.75}),
        (f'{{{M}, "reward": 0}}', {"fallback": "mean"}, {"a": 0.5, "b": 1.0, "reward": 0.0}),
        ('{"a": 1, "b": 0.25}', {"method": "weighted_sum", "weights": {"a": 0.5, "b": 1}}, {"reward": 0.75}),
        ('{"a": 1, "b": 0.25}', {"method": "all_pass"}, {"reward": 0.0}),
        ('{"a": 1, "b": 0.25}', {"method": "any_pass"}, {"reward": 1.0}),
        ('{"a": 1, "b": 0.25}', {"method": "threshold", "threshold": 0.6}, {"reward": 1.0}),
        ('{"a": 1, "b": 0.25}', {"method": "threshold"}, {"reward": 0.0}),
    ],
)
def test_a_native_tasks_file_may_have_metrics_and_details(
    tmp_path: Path, text: str, policy: dict[str, object], rewards: dict[str, float]
) -> None:
    (tmp_path / "reward.json").write_text(text)
    numbers = {key: value for key, value in json.loads(text).items() if isinstance(value, int | float)}
    assert read_rewards(tmp_path, policy=policy) == pytest.approx({**numbers, **rewards})


@pytest.mark.parametrize("text", [f"{{{M}}}", '{"reward": 1, "reason": "fine"}'])
def test_other_tasks_have_numbers_only(tmp_path: Path, text: str) -> None:
    with pytest.raises(RewardError, match=r"is an object|is a string"):
        read(tmp_path, js=text)


@pytest.mark.parametrize(
    ("text", "policy", "said"),
    [
        ('{"reason": "x"}', {}, "reward.json holds no number"),
        ('{"reward": 1, "done": "yes"}', {}, "done is a string"),
        ('{"reward": true, "reason": "x"}', {}, "reward is a boolean"),
        ('{"metrics": [1]}', {}, "metrics is not an object"),
        ('{"metrics": {"a": "1"}}', {}, "metrics.a is a string"),
        ('{"metrics": {"a": true}}', {}, "metrics.a is a boolean"),
        ('{"metrics": {"a": 1}, "a": 2}', {}, "has a among its metrics and beside them"),
        (f'{{{M}, "aggregate": "mean"}}', {}, "aggregate is not an object"),
        (f'{{{M}, "aggregate": {{}}, "reward": 1}}', {"weights": {}}, None),
        (f'{{{M}, "aggregate": {{"weights": {{}}}}}}', {}, "aggregate has no method"),
        (f"{{{M}}}", {"method": "meen"}, "has the method meen; did you mean mean?"),
        (f"{{{M}}}", {"method": "weighted_sum"}, "weighted_sum needs weights"),
        (f"{{{M}}}", {"method": "weighted_sum", "weights": {"a": 1}}, "weights and metrics differ in b"),
        (f"{{{M}}}", {"method": "weighted_mean", "weights": {"a": 0, "b": 0}}, "no positive sum"),
        (f"{{{M}}}", {"method": "threshold", "threshold": "x"}, "threshold of the aggregate policy is not a number"),
        (f"{{{M}}}", {"method": "mean", "field": "score"}, "is for score"),
        (f'{{{M}, "reward": 1}}', {"method": "mean"}, "says 1, and its metrics give 0.75"),
        ('{"reward": 1}', {"method": "mean"}, "an aggregate policy and no metrics"),
    ],
)
def test_what_a_policy_cannot_work_with_is_an_error(
    tmp_path: Path, text: str, policy: dict[str, object], said: str | None
) -> None:
    (tmp_path / "reward.json").write_text(text)
    if said is None:
        assert read_rewards(tmp_path, policy=policy)["reward"] == 1.0
        return
    with pytest.raises(RewardError, match=re.escape(said)):
        read_rewards(tmp_path, policy=policy)


def test_no_file_is_an_error_that_says_what_is_there_instead(tmp_path: Path) -> None:
    (tmp_path / "test-stdout.txt").write_text("1")
    with pytest.raises(RewardError, match=r"no reward\.txt or reward\.json.*holds test-stdout\.txt"):
        read(tmp_path)


def test_a_directory_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="it is empty"):
        read_rewards(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("js", "txt"),
    [('{"reward": 0.5}', "0.5"), ('{"a": 0, "b": 1}', "0.5"), ('{"reward": 1, "a": 0}', "1.0\n")],
)
def test_both_files_may_agree(tmp_path: Path, js: str, txt: str) -> None:
    assert read(tmp_path, js=js, txt=txt) == {key: float(value) for key, value in json.loads(js).items()}


@pytest.mark.parametrize(("js", "txt"), [('{"reward": 1}', "0"), ('{"a": 0, "b": 1}', "1"), ('{"reward": 0}', "0.01")])
def test_both_files_must_not_disagree(tmp_path: Path, js: str, txt: str) -> None:
    with pytest.raises(RewardError, match=r"reward\.json says .* and reward\.txt says"):
        read(tmp_path, js=js, txt=txt)


@pytest.mark.parametrize("js", ["", "{}", "nonsense", '{"reward": true}', "1"])
def test_a_broken_reward_json_is_an_error_beside_a_good_reward_txt(tmp_path: Path, js: str) -> None:
    with pytest.raises(RewardError, match=r"reward\.json"):
        read(tmp_path, js=js, txt="1")


def test_a_broken_reward_txt_is_an_error_beside_a_good_reward_json(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match=r"reward\.txt"):
        read(tmp_path, js='{"reward": 1}', txt="yes")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    outside.write_text("1")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "reward.txt").symlink_to(outside)
    with pytest.raises(RewardError, match=r"no reward\.txt"):
        read_rewards(logs)


def test_a_directory_named_like_the_file_is_no_reward(tmp_path: Path) -> None:
    (tmp_path / "reward.txt").mkdir()
    with pytest.raises(RewardError):
        read_rewards(tmp_path)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="bytes"):
        read(tmp_path, txt="1" * 1_000_001)


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "reward.txt").write_bytes(b"\xff\xfe1")
    with pytest.raises(RewardError, match=r"reward\.txt holds"):
        read_rewards(tmp_path)


def test_a_bad_reward_is_of_its_own_category(tmp_path: Path) -> None:
    with pytest.raises(RewardError) as caught:
        read(tmp_path)
    assert caught.value.category is Category.REWARD
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("rewards", "number"),
    [({"reward": 0.3, "a": 1.0}, 0.3), ({"a": 0.2, "b": 1.0}, 0.6), ({"a": 0.25}, 0.25), ({"reward": 0.0}, 0.0)],
)
def test_the_threshold_looks_at_reward_or_else_the_mean(rewards: dict[str, float], number: float) -> None:
    assert primary_reward(rewards) == pytest.approx(number)


def outcome(parse: Callable[[str], object], text: str) -> object:
    """Return what a parser gives, or the text of its RewardError; nothing else may come out."""
    try:
        return parse(text)
    except RewardError as error:
        return str(error)


@given(st.text())
def test_any_reward_txt_gives_a_finite_number_or_one_line(text: str) -> None:
    found = outcome(parse_txt, text)
    assert "\n" not in found if isinstance(found, str) else math.isfinite(found)


@given(st.floats(min_value=-1e100, max_value=1e100))
def test_every_finite_number_survives_reward_txt(number: float) -> None:
    assert parse_txt(repr(number)) == number


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(_VALUES.map(json.dumps) | st.text())
def test_any_reward_json_gives_finite_numbers_or_one_line(text: str) -> None:
    found = outcome(parse_json, text)
    if isinstance(found, str):
        assert "\n" not in found
    else:
        assert found
        assert all(type(value) is float and math.isfinite(value) for value in found.values())


@pytest.mark.parametrize(
    ("txt", "within", "error"),
    [
        ("7", None, None),
        ("1", (0.0, 1.0), None),
        ("10", (0.0, 10.0), None),
        ("1.5", (0.0, 1.0), "reward is 1.5, outside [0, 1]; scale it, or widen [verifier] reward_range"),
        ("-2", (-1.0, 10.0), "reward is -2, outside [-1, 10]; scale it, or widen [verifier] reward_range"),
    ],
)
def test_a_range_that_the_task_declares_is_kept(
    tmp_path: Path, txt: str, within: tuple[float, float] | None, error: str | None
) -> None:
    (tmp_path / "reward.txt").write_text(txt)
    if error is None:
        assert read_rewards(tmp_path, within) == {"reward": float(txt)}
    else:
        with pytest.raises(RewardError, match=re.escape(error)):
            read_rewards(tmp_path, within)
