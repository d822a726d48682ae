"""Stopping when all is decided: what is certain, and what a sequential test says without lying too often."""

from __future__ import annotations

import itertools
import random

import pytest
from outcomes import Row, row

from pytest_benchflow.core.errors import HeldBack
from pytest_benchflow.jobs import (
    JobEvent,
    Labels,
    Planned,
    StopWhenDecided,
    early_verdicts,
    evaluate,
    read_gates,
    saved_by_stopping,
)
from pytest_benchflow.jobs.gates import METRICS
from pytest_benchflow.jobs.sequential import SequentialTest
from pytest_benchflow.rollout import RolloutConfig

CONFIG = RolloutConfig(task_path="/tasks/any")


def planned(rows: list[Row]) -> list[Planned]:
    return [Planned(one.id, Labels.of(one.result)) for one in rows]


def ended(one: Row, **more: object) -> JobEvent:
    event = JobEvent.of_result("end", one.result)
    fields = {name: getattr(event, name) for name in JobEvent.__slots__}
    return JobEvent(**{**fields, "key": one.id, **more})  # type: ignore[arg-type]


def rule_of(gates: list[str], rows: list[Row], **more: object) -> StopWhenDecided:
    rule = StopWhenDecided(read_gates(gates), **more)  # type: ignore[arg-type]
    rule.begin(planned(rows))
    return rule


def run_until_refused(rule: StopWhenDecided, rows: list[Row]) -> tuple[int, str | None]:
    """Feed outcomes in order; return how many it took and the reason."""
    for number, one in enumerate(rows):
        if (reason := rule.refusal(CONFIG)) is not None:
            assert isinstance(reason, HeldBack)
            assert reason.kind == "decided"
            return number, str(reason)
        rule.learn(ended(one))
    reason = rule.refusal(CONFIG)
    return len(rows), None if reason is None else str(reason)


def tasks(rewards: str) -> list[Row]:
    return [row(f"t{number}", float(digit)) for number, digit in enumerate(rewards)]


@pytest.mark.parametrize(
    ("gates", "rewards", "needed"),
    [
        (["pass_rate >= 0.5"], "1111111111", 5),
        (["pass_rate >= 0.5"], "0000001111", 6),
        (["pass_rate >= 0.5"], "0101010101", 10),
        (["pass_rate >= 0.5", "pass_rate <= 0.9"], "1110000000", 9),
        (["pass_rate >= 0.2", "failed <= 1"], "1110000000", 5),
        (["mean_reward >= 0.5"], "1111111111", 5),
        (["pass_rate_low >= 0.1"], "1111111111", 10),
        (["pass_rate[task='t0'] >= 1"], "1000000000", 1),
        (["pass_rate[task='t0'] >= 1", "pass_rate[task='t9'] >= 1"], "1111111111", 10),
    ],
)
def test_it_stops_as_soon_as_no_outcome_can_change_anything(gates: list[str], rewards: str, needed: int) -> None:
    rows = tasks(rewards)
    n, reason = run_until_refused(rule_of(gates, rows), rows)
    assert n == needed
    if n < len(rows):
        assert reason is not None
        assert reason.startswith("decided: ")
        held = [row(f"t{number}", None, skipped="decided", held_back="decided") for number in range(n, len(rows))]
        rest = [Labels.of(one.result) for one in held]
        early = evaluate(read_gates(gates), [*rows[:n], *held], rest=rest)
        full = evaluate(read_gates(gates), rows)
        sealed = [one for one in early if one.outcome != "undecided"]
        assert sealed
        assert all(one.outcome == two.outcome for one, two in zip(early, full, strict=True) if one in sealed)


def test_what_may_run_again_is_open_until_it_passes() -> None:
    rows = tasks("0011")
    rule = StopWhenDecided(read_gates(["pass_rate >= 1"]))
    rule.begin([one._replace(may_rerun=True) for one in planned(rows)[:1]] + planned(rows)[1:])
    rule.learn(ended(rows[0]))
    assert rule.refusal(CONFIG) is None
    rule.learn(ended(row("t0", 1.0)))
    assert rule.refusal(CONFIG) is None
    rule.learn(ended(rows[1]))
    assert "pass_rate >= 1 fails" in str(rule.refusal(CONFIG))


def test_a_gate_that_has_failed_is_enough_unless_gates_only_report() -> None:
    rows = tasks("0111111111")
    gates = ["failed == 0", "pass_rate >= 0.5"]
    assert run_until_refused(rule_of(gates, rows), rows)[0] == 1
    assert run_until_refused(rule_of(gates, rows, report_only=True), rows)[0] == 6


def test_money_that_is_spent_decides_too() -> None:
    rows = [row(f"t{n}", cost_usd=1.0, n_prompts=1) for n in range(10)]
    assert run_until_refused(rule_of(["cost_usd <= 3"], rows), rows)[0] == 4


KINDS: dict[str, dict[str, object]] = {
    "passed": {"timing": {"total": 5.0}},
    "failed": {"reward": 0.5, "timing": {"total": 5.0}},
    "error": {"reward": None},
    "paid": {"cost_usd": 2.0, "tokens": {"input": 10}, "n_prompts": 1, "n_tool_calls": 3},
    "untold": {"reward": 0.0, "n_prompts": 1},
    "again": {"cost_usd": 1.0, "n_prompts": 1, "attempts": [{"rollout_name": "x", "status": "error", "cost_usd": 4.0}]},
    "tampered": {"integrity": [{"kind": "shadowing_module", "message": "x"}]},
}
LIMITS = {"rollouts": (2, 3), "cost_usd": (0, 2, 4, 5), "tokens": (0, 10), "tool_calls": (0, 3), "seconds": (5, 10)}


@pytest.mark.parametrize("metric", [*METRICS, "pass_at_1", "pass_at_2", "pass_all_2"])
def test_what_is_decided_is_what_every_run_to_the_end_says(metric: str) -> None:
    trials = (("a", 1), ("a", 2), ("b", 1)) if "_2" in metric else (("a", 1), ("b", 1), ("c", 1))
    kinds = [*KINDS][:3] if metric.startswith(("pass", "mean", "failed", "skip", "roll", "err")) else [*KINDS][1:]
    runs = {
        each: [row(task, trial=n, **KINDS[kind]) for (task, n), kind in zip(trials, each, strict=True)]  # type: ignore[arg-type]
        for each in itertools.product(kinds, repeat=len(trials))
    }
    signs = (">=", "<=", ">", "<", "==", "!=")
    limits = LIMITS.get(metric, (0, 0.5, 1))
    gates = read_gates(f"{metric}{f} {sign} {n}" for f in ("", "[task='a']") for sign in signs for n in limits)
    is_red = {each: [one.blocks for one in evaluate(gates, run)][: len(gates)] for each, run in runs.items()}
    for n_known in range(1, len(trials)):
        for beginning in itertools.product(kinds, repeat=n_known):
            ends = [each for each in runs if each[:n_known] == beginning]
            for number, gate in enumerate(gates):
                if (answer := decided(gate.text, runs[ends[0]], n_known)) is not None:
                    assert {not is_red[each][number] for each in ends} == {answer}, (gate, beginning)


def decided(gate: str, rows: list[Row], n_known: int) -> bool | None:
    """Return whether a gate passes, once so many rows are known, or None if that is open."""
    rule = rule_of([gate], rows)
    for one in rows[:n_known]:
        for attempt in one.result.attempts:
            rule.learn(JobEvent(kind="retry", ts=0, key=one.id, agent="gemini", cost_usd=attempt.cost_usd))
        rule.learn(ended(one))
    reason = rule.refusal(CONFIG)
    return None if reason is None else f"{gate} passes" in str(reason)


def test_what_did_not_run_or_was_cancelled_has_no_outcome() -> None:
    rows = tasks("11")
    rule = rule_of(["pass_rate >= 1"], rows)
    rule.learn(ended(rows[0]))
    rule.learn(ended(rows[1], status="skipped", refused=True))
    rule.learn(ended(rows[1], status="cancelled"))
    rule.learn(JobEvent(kind="start", ts=0, key=rows[1].id))
    assert rule.refusal(CONFIG) is None
    rule.learn(ended(rows[1]))
    rule.learn(ended(rows[1]))  # told twice, counted once
    assert rule.refusal(CONFIG) is not None


def test_only_an_unbroken_beginning_speaks_for_the_rest() -> None:
    rows = tasks("1" * 60)
    rule = rule_of(["pass_rate >= 0.3"], rows, confidence=0.95)
    for one in rows[1:16]:
        rule.learn(ended(one))
    assert rule.refusal(CONFIG) is None  # the first one still runs: whoever ends early may be the easy ones
    rule.learn(ended(rows[0]))
    reason = rule.refusal(CONFIG)
    assert reason is not None
    assert "certain to 95%" in str(reason)


def test_errors_speak_neither_for_nor_against() -> None:
    rows = [*tasks("1" * 3), *(row(f"e{n}", None) for n in range(30)), *tasks("1" * 20)]
    rows = [Row(f"{n}", one.status, one.result) for n, one in enumerate(rows)]
    verdicts = early_verdicts(read_gates(["pass_rate >= 0.5"]), rows, 0.95)
    (verdict,) = verdicts.values()
    assert verdict.holds
    assert verdict.seen > 10  # three passes alone are too few
    nothing = [row(f"e{n}", None) for n in range(30)]
    assert not early_verdicts(read_gates(["pass_rate >= 0.5"]), nothing, 0.95)


def test_a_verdict_that_was_reached_early_stays() -> None:
    gates = read_gates(["pass_rate >= 0.5"])
    outcomes = [row(f"a{n}") for n in range(20)] + [row(f"b{n}", 0.0) for n in range(20)]
    held = [row(f"c{n}", None, skipped="decided", held_back="decided") for n in range(60)]
    rest = [Labels.of(one.result) for one in held]
    tests = early_verdicts(gates, [*outcomes, *held], 0.95)
    (verdict,) = evaluate(gates, [*outcomes, *held], rest=rest, tests=tests)
    assert verdict.outcome == "passed"
    assert "so far, certain to 95% after" in verdict.message
    assert evaluate(gates, [*outcomes, *held], rest=rest)[0].outcome == "undecided"


@pytest.mark.parametrize(
    ("population", "passing", "limit"),
    [(100, 79, 0.8), (100, 80, 0.8), (100, 50, 0.5), (30, 24, 0.8), (300, 239, 0.8), (60, 5, 0.1)],
)
def test_a_wrong_verdict_is_as_rare_as_promised_wherever_the_truth_lies(
    population: int, passing: int, limit: float
) -> None:
    chance, runs, wrong = random.Random(population + passing), 500, 0
    truth = "above" if passing >= limit * population - 1e-9 else "below"
    for _ in range(runs):
        values = [1.0] * passing + [0.0] * (population - passing)
        chance.shuffle(values)
        test = SequentialTest(population, limit, 0.05)
        for value in values:
            test.add(value)
        wrong += test.verdict not in (None, truth)
        assert test.verdict is not None or passing >= limit * population - 1e-9  # the last one leaves no doubt
    assert wrong / runs <= 0.05


def test_rewards_between_zero_and_one_keep_the_promise_too() -> None:
    chance, runs, wrong = random.Random(7), 400, 0
    for _ in range(runs):
        values = [chance.choice((0.0, 0.25, 0.5, 1.0)) for _ in range(80)]
        limit = sum(values) / 80 + 0.002  # just missed
        test = SequentialTest(80, limit, 0.1)
        for value in values:
            test.add(value)
        wrong += test.verdict == "above"
    assert wrong / runs <= 0.1


@pytest.mark.parametrize(("passing", "at_most"), [(20, 12), (95, 45), (40, 20)])
def test_a_clear_case_needs_a_small_part_of_the_run(passing: int, at_most: int) -> None:
    chance, needed = random.Random(passing), []
    for _ in range(100):
        values = [1.0] * passing + [0.0] * (100 - passing)
        chance.shuffle(values)
        test = SequentialTest(100, 0.8, 0.05)
        for value in values:
            test.add(value)
        needed.append(test.n)
    assert sum(needed) / len(needed) <= at_most


def test_several_gates_share_the_error_rate() -> None:
    rows = tasks("1" * 60)
    alone, *others = read_gates(["pass_rate >= 0.5", *(f"pass_rate[task='t{n}'] >= 0.5" for n in range(20))])
    by_itself, with_others = (early_verdicts(gates, rows, 0.95)[alone].seen for gates in ([alone], [alone, *others]))
    assert by_itself < with_others


def test_what_was_saved_goes_by_what_ran() -> None:
    ran = [row(f"a{n}", cost_usd=2.0, timing={"total": 30.0}) for n in range(3)]
    held = [row(f"b{n}", None, skipped="decided", held_back="decided") for n in range(5)]
    saved = saved_by_stopping([*ran, *held])
    assert saved is not None
    assert (saved.rollouts, saved.of, saved.cost_usd, saved.seconds) == (5, 8, 10.0, 150.0)
    assert saved_by_stopping(ran) is None
