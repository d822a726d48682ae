"""Two runs side by side: what is evidence, and what cannot be compared."""

from __future__ import annotations

import pytest
from outcomes import row, rows

from pytest_benchflow.jobs import Comparison, compare, comparison_lines


def single(rewards: str, **more: object) -> list[object]:
    """Return one trial of each of some tasks."""
    return rows({f"t{n}": [float(digit)] for n, digit in enumerate(rewards)}, **more)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("before", "after", "verdict", "p"),
    [
        ("1111111111", "0000001111", "regressed", 0.03125),
        ("0000001111", "1111111111", "improved", 0.03125),
        ("1111111111", "0000011111", "no evidence", 0.0625),
        ("1111", "1111", "no evidence", 1.0),
        ("10", "01", "no evidence", 1.0),
    ],
)
def test_one_trial_a_task_is_mcnemars_test(before: str, after: str, verdict: str, p: float) -> None:
    found = compare(single(before), single(after))  # type: ignore[arg-type]
    assert found.pass_rate is not None
    assert (found.verdict, found.pass_rate.p_value) == (verdict, pytest.approx(p))
    assert found.pass_rate.test == "exact McNemar test"
    assert found.pass_rate.interval is not None
    assert found.pass_rate.interval[0] <= found.pass_rate.difference <= found.pass_rate.interval[1]


def test_several_trials_are_compared_by_task() -> None:
    before = rows({f"t{n}": [1.0, 1.0, 1.0] for n in range(6)})
    after = rows({f"t{n}": [1.0, 0.0, 0.0] for n in range(6)})
    found = compare(before, after)
    assert found.pass_rate is not None
    assert (found.verdict, found.pass_rate.test, found.pass_rate.p_value) == ("regressed", "sign-flip test", 2 / 64)
    assert found.pass_rate.difference == pytest.approx(-2 / 3)


def test_a_run_of_fewer_trials_does_not_seem_better_because_each_of_them_passed() -> None:
    before = rows({f"t{n}": [0.0] + [1.0] * 9 for n in range(12)})
    found = compare(before, rows({f"t{n}": [1.0] for n in range(12)}))
    assert found.pass_rate is not None
    assert (found.verdict, found.pass_rate.test) == ("no evidence", "sign-flip and permutation tests")
    worse = compare(before, rows({f"t{n}": [0.0] for n in range(12)}))
    assert worse.verdict == "regressed"


def test_a_single_task_stands_on_its_trials() -> None:
    found = compare(rows({"a": [1.0] * 8}), rows({"a": [0.0] * 8}))
    assert found.pass_rate is not None
    assert (found.verdict, found.pass_rate.interval) == ("regressed", None)
    assert found.tasks[0].verdict == "regressed"


def test_rewards_can_tell_what_the_pass_rate_does_not() -> None:
    before = rows({f"t{n}": [0.5 + n / 100] for n in range(8)})
    after = rows({f"t{n}": [0.3 + n / 90] for n in range(8)})
    found = compare(before, after)
    assert found.pass_rate is not None
    assert found.mean_reward is not None
    assert (found.pass_rate.verdict, found.mean_reward.verdict) == ("no evidence", "regressed")
    assert len(comparison_lines(found)) == 2


def test_single_tasks_are_told_and_allow_for_how_many_there_are() -> None:
    before = rows({"a": [1.0] * 5, "b": [1.0] * 5, "c": [0.0] * 5})
    after = rows({"a": [0.0] * 5, "b": [1.0] * 4 + [0.0], "c": [0.0] * 5})
    changes = {change.task: change for change in compare(before, after).tasks}
    assert [(changes[name].change, changes[name].verdict) for name in "abc"] == [
        ("worse", "regressed"),
        ("worse", "no evidence"),
        ("same", "no evidence"),
    ]
    assert changes["a"].p_value == pytest.approx(3 * 2 / 252)


def test_what_one_side_lacks_or_could_not_score_is_dropped_and_told() -> None:
    before = [row("a"), row("b"), row("gone"), row("flaky", 0.0, status="quarantined")]
    after = [row("a"), row("b", None), row("new"), row("flaky")]
    found = compare(before, after)
    assert (found.only_before, found.only_after, found.unscored) == (["gone"], ["new", "flaky"], ["b"])
    assert found.pass_rate is not None
    assert found.pass_rate.tasks == 1
    assert "  only in the earlier run: gone" in comparison_lines(found)
    assert comparison_lines(compare(before, []))[0] == "no task was scored in both runs"


def test_two_configurations_that_differ_are_compared_with_each_other() -> None:
    found = compare([row("a", model="flash")], [row("a", 0.0, model="pro")])
    assert found.notes == ["gemini/flash is compared with gemini/pro"]
    assert found.pass_rate is not None
    assert found.pass_rate.difference == -1


def test_of_several_configurations_each_is_compared_with_itself() -> None:
    before = [row("a", agent="codex"), row("a"), row("a", agent="pi")]
    after = [row("a", 0.0, agent="codex"), row("a")]
    found = compare(before, after)
    assert found.only_before == ["a (pi/flash)"]
    assert {(change.configuration, change.change) for change in found.tasks} == {
        ("codex/flash", "worse"),
        ("gemini/flash", "same"),
    }
    assert found.pass_rate is not None
    assert (found.pass_rate.tasks, found.pass_rate.before, found.pass_rate.after) == (1, 1.0, 0.5)


def test_tasks_that_changed_are_told() -> None:
    found = compare([row("a", task_digest="1")], [row("a", task_digest="2")])
    assert found.notes == ["1 task changed since the earlier run: a"]


def test_tasks_of_one_name_are_told_apart_by_their_path() -> None:
    def both(first: float, second: float) -> list[object]:
        one = row("x", first)
        other = row("x", second, task_path="/elsewhere/x")
        return [one, type(other)("more/x/task.toml::gemini", other.status, other.result)]

    found = compare(both(1.0, 0.0), both(1.0, 1.0))  # type: ignore[arg-type]
    assert [(change.task, change.change) for change in found.tasks] == [
        ("tasks/x/task.toml", "same"),
        ("more/x/task.toml", "better"),
    ]


def test_a_comparison_survives_its_file() -> None:
    found = compare(single("11"), single("10"))  # type: ignore[arg-type]
    assert Comparison.model_validate_json(found.model_dump_json()) == found


def test_a_rate_cannot_differ_by_more_than_all() -> None:
    before, after = rows({"a": [1.0, 0.0], "b": [1.0, 1.0]}), rows({"a": [0.0, 0.0], "b": [1.0, 0.0]})
    found = compare(before, after).pass_rate
    assert found is not None
    assert found.interval == (-1.0, pytest.approx(1.0))
