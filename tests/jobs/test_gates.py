"""Gates: what can be written, what is refused and where, and what becomes of them."""

from __future__ import annotations

import pytest
from outcomes import Row, row, rows

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.jobs import GateVerdict, Labels, evaluate, gate_lines, parse_gate, read_gates
from pytest_benchflow.verify import JudgeRecord

MIXED = [
    row("a", 1.0, agent="gemini", model="flash", cost_usd=1.0, n_prompts=1, difficulty="easy", tags=["io", "sql"]),
    row("b", 0.5, agent="gemini", model="flash", cost_usd=0.5, n_prompts=1, difficulty="hard"),
    row("c", 1.0, agent="codex", model="gpt", cost_usd=2.0, n_prompts=1, category="web", scene="review"),
    row("org/d", 0.0, agent="codex", model="gpt", cost_usd=1.5, n_prompts=1),
]


def verdict(expression: str, outcomes: list[Row] = MIXED, **more: object) -> GateVerdict:
    """Return the verdict of one gate."""
    return evaluate([parse_gate(expression)], outcomes, **more)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expression", "outcome", "value"),
    [
        ("pass_rate >= 0.5", "passed", 0.5),
        ("pass_rate >= 50%", "passed", 0.5),
        ("pass_rate > 0.5", "failed", 0.5),
        ("  pass_rate>=.5  ", "passed", 0.5),
        ("pass_rate == 5e-1", "passed", 0.5),
        ("pass_rate != 0.5", "failed", 0.5),
        ("pass_rate_low >= 0.5", "failed", 0.15),
        ("pass_rate_high >= 0.5", "passed", 0.85),
        ("mean_reward < 0.7", "passed", 0.625),
        ("mean_reward[agent='gemini'] >= 0.75", "passed", 0.75),
        ("mean_reward[agent='codex', task=\"c\"] >= 1", "passed", 1.0),
        ("pass_rate[agent=='gem*'] >= 0.5", "passed", 0.5),
        ("pass_rate[task='d'] == 0", "passed", 0.0),
        ("pass_rate[model='gpt'] >= 0.5", "passed", 0.5),
        ("pass_rate[scene='review'] >= 1", "passed", 1.0),
        ("pass_rate[tag='sql'] >= 1", "passed", 1.0),
        ("pass_rate[difficulty='hard'] > 0", "failed", 0.0),
        ("pass_rate[category='web'] > 0", "passed", 1.0),
        ("rollouts == 4", "passed", 4.0),
        ("passed >= 2", "passed", 2.0),
        ("failed <= 1", "failed", 2.0),
        ("errors == 0", "passed", 0.0),
        ("cost_usd <= 5", "passed", 5.0),
        ("cost_usd[agent='codex'] <= 3", "failed", 3.5),
        ("seconds <= 40", "passed", 40.0),
        ("tool_calls == 0", "passed", 0.0),
        ("integrity_findings == 0", "passed", 0.0),
        ("pass_at_1 >= 0.5", "passed", 0.5),
        ("pass_all_1 >= 0.5", "passed", 0.5),
    ],
)
def test_a_gate_compares_a_number_of_the_run_with_its_limit(expression: str, outcome: str, value: float) -> None:
    found = verdict(expression)
    assert (found.outcome, found.value) == (outcome, pytest.approx(value, abs=5e-3))
    assert found.blocks == (outcome == "failed")


@pytest.mark.parametrize(
    ("expression", "column", "message"),
    [
        ("pas_rate >= 0.8", 0, "pas_rate is not a metric; did you mean pass_rate?"),
        ("", 0, "expected a metric"),
        ("0.8 <= pass_rate", 0, "expected a metric"),
        ("pass_rate", 9, "expected >=, <=, >, <, == or !="),
        ("pass_rate = 0.8", 10, "= is not a comparison; write >="),
        ("pass_rate >= high", 13, "expected a number"),
        ("pass_rate >=", 12, "expected a number"),
        ("pass_rate >= 0.8 and errors == 0", 17, "expected nothing more; give each gate its own --bf-gate"),
        ("pass_rate[agnt='gemini'] >= 1", 10, "agnt is not something to filter by; did you mean agent?"),
        ("pass_rate[agent 'gemini'] >= 1", 16, "expected =; write agent='…'"),
        ("pass_rate[agent=gemini] >= 1", 16, "expected a string, as in agent='…'"),
        ("pass_rate[agent='a' model='b'] >= 1", 20, "expected , or ]"),
        ("pass_rate[agent='a' >= 1", 20, "expected , or ]"),
        ("pass_rate[] >= 1", 10, "expected one of agent, model"),
        ("pass_at_0 >= 1", 0, "pass_at_0 is not a metric"),
        ("__import__('os') >= 1", 0, "__import__ is not a metric"),
        ("pass_rate >= 0.8; x", 16, "expected nothing more"),
        ("pass_rate >= 80", 13, "pass_rate is between 0 and 1; write 80%"),
        ("pass_rate\t>= many", 13, "expected a number"),
        ("regression_low <= 5", 18, "regression_low is between -1 and 1; write 5%"),
        ("pass_at_3 <= -1", 13, "pass_at_3 is between 0 and 1"),
    ],
)
def test_what_is_wrong_is_shown_below_the_column(expression: str, column: int, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_gate(expression)
    what, shown, mark = str(raised.value).split("\n")
    assert what.startswith(f"--bf-gate: {message}")
    assert shown == f"  {expression}".replace("\t", " ")
    assert mark == " " * (2 + column) + "^"


@pytest.mark.parametrize("symbol", ["<=", "==", ">="])
def test_a_limit_of_many_digits_is_reached_by_its_equal(symbol: str) -> None:
    assert parse_gate(f"pass_rate {symbol} {2 / 3}").holds(2 / 3)


def test_a_gate_over_nothing_is_an_error_that_names_what_there_is() -> None:
    assert verdict("pass_rate >= 0", []).outcome == "error"
    found = verdict("pass_rate[agent='gemni'] >= 0")
    assert (found.outcome, found.blocks) == ("error", True)
    assert found.message == "no rollout has agent='gemni'; did you mean gemini?"
    assert "has all of" in verdict("pass_rate[agent='gemini', model='gpt'] >= 0").message


def test_what_was_not_scored_has_no_rate() -> None:
    found = verdict("pass_rate >= 0", [row("a", None), row("b", None, skipped="no solution")])
    assert (found.outcome, found.message) == ("error", "none of 2 rollouts was scored")


def test_an_unknown_cost_is_not_zero() -> None:
    told, untold = row("a", cost_usd=1.0, n_prompts=1), row("b", n_prompts=1)
    assert verdict("cost_usd <= 5", [untold]).outcome == "error"
    assert verdict("cost_usd <= 5", [told, untold]).outcome == "error"
    assert verdict("cost_usd <= 0.5", [told, untold]).outcome == "failed"  # more will not make it less
    free, judged = row("a", agent="oracle"), row("b", agent="oracle", judge=JudgeRecord("m", calls=1))
    assert verdict("cost_usd <= 5", [free]).outcome == "passed"
    assert verdict("cost_usd <= 5", [judged]).outcome == "error"
    assert verdict("cost_usd <= 0", [row("a", agent="oracle", model=None, n_prompts=1)]).outcome == "passed"


def test_trials_of_every_task_count_together() -> None:
    trials = rows({"a": [1.0, 0.0, 0.0], "b": [1.0, 1.0, 1.0]})
    assert verdict("pass_at_2 >= 0.8", trials).value == pytest.approx((2 / 3 + 1) / 2)
    assert verdict("pass_all_3 >= 0.5", trials).value == pytest.approx(0.5)
    found = verdict("pass_at_3 >= 0", [*trials, row("c")])
    assert (found.outcome, found.message) == (
        "error",
        "needs 3 scored trials of every task, and one has 1; see --bf-trials",
    )


def test_errors_fail_a_run_unless_a_gate_speaks_of_them() -> None:
    broken = [row("a"), row("b", None, agent="codex"), row("c", None)]
    by_default = evaluate(read_gates(["pass_rate >= 0.5"]), broken)
    assert [(one.gate, one.outcome, one.origin) for one in by_default] == [
        ("pass_rate >= 0.5", "passed", "option"),
        ("errors == 0", "failed", "implied"),
    ]
    assert [one.outcome for one in evaluate(read_gates(["errors <= 2"]), broken)] == ["passed"]
    partly = evaluate(read_gates(["errors[agent='codex'] <= 1"]), broken)
    assert [(one.outcome, one.value) for one in partly] == [("passed", 1.0), ("failed", 1.0)]


def test_quarantined_rollouts_never_block() -> None:
    outcomes = [row("a"), row("b", 0.0, status="quarantined"), row("c", None, status="quarantined")]
    gates = read_gates(["pass_rate >= 1", "failed == 0", "rollouts == 1"])
    assert [one.outcome for one in evaluate(gates, outcomes)] == ["passed"] * 3


def test_report_only_lets_low_numbers_pass_but_not_a_broken_harness() -> None:
    outcomes = [row("a", 0.0), row("b", None)]
    low, errors, nobody = evaluate(
        read_gates(["pass_rate >= 1", "errors == 0", "pass_rate[agent='x'] > 0"]), outcomes, report_only=True
    )
    assert (low.outcome, low.blocks, low.message.endswith("; only reported")) == ("failed", False, True)
    assert errors.blocks
    assert nobody.blocks
    assert evaluate([], outcomes, report_only=True)[0].blocks


LEFT = [Labels.of(row(f"left-{n}").result) for n in range(2)]
HALF = rows({"a": [1.0], "b": [0.0]})


@pytest.mark.parametrize(
    ("expression", "outcome"),
    [
        ("pass_rate >= 0.25", "passed"),
        ("pass_rate >= 0.26", "undecided"),
        ("pass_rate >= 0.76", "failed"),
        ("pass_rate <= 0.2", "failed"),
        ("pass_rate < 0.8", "passed"),
        ("pass_rate == 0.9", "failed"),
        ("pass_rate != 0.9", "passed"),
        ("pass_rate == 0.5", "undecided"),
        ("mean_reward >= 0.75", "undecided"),
        ("mean_reward >= 0.8", "failed"),
        ("failed <= 0", "failed"),
        ("failed <= 3", "passed"),
        ("failed <= 2", "undecided"),
        ("errors == 0", "undecided"),
        ("seconds <= 10", "failed"),
        ("seconds <= 100", "undecided"),
        ("pass_rate_low >= 0", "undecided"),
        ("pass_rate[task='a'] >= 1", "passed"),
        ("pass_rate[task='left-*'] >= 0", "error"),
        ("pass_at_1 >= 0", "undecided"),
    ],
)
def test_a_gate_is_decided_only_if_no_outcome_of_the_rest_can_change_it(expression: str, outcome: str) -> None:
    assert verdict(expression, HALF, rest=LEFT).outcome == outcome


@pytest.mark.parametrize(
    ("expression", "outcome"),
    [("pass_at_2 >= 0.8", "passed"), ("pass_all_2 >= 0.8", "failed"), ("pass_at_2 >= 0.99", "undecided")],
)
def test_missing_trials_are_bounded_too(expression: str, outcome: str) -> None:
    outcomes = rows({"a": [1.0, 1.0, 0.0], "b": [1.0, 1.0, 0.0]})
    rest = [Labels.of(outcomes[0].result)]
    assert verdict(expression, outcomes, rest=rest).outcome == outcome


def test_rewards_above_one_leave_the_mean_open() -> None:
    assert verdict("mean_reward >= 0.1", rows({"a": [3.0], "b": [1.0]}), rest=LEFT[:1]).outcome == "undecided"


def test_what_was_held_back_because_all_was_decided_counts_for_nothing() -> None:
    held = row("z", None, skipped="decided", held_back="decided")
    found = verdict("pass_rate >= 0.5", [*HALF, held])
    assert (found.outcome, found.rollouts) == ("passed", 2)


def test_a_baseline_gives_regressions_a_meaning() -> None:
    before = rows({name: [1.0] for name in "abcdefgh"})
    after = rows({name: [float(name < "c")] for name in "abcdefgh"})
    gates = read_gates(["regression_low <= 0", "regression[task='a'] <= 0"], max_regression=0.1)
    low, one, most = evaluate(gates, after, baseline=before)
    assert (low.outcome, one.outcome) == ("failed", "passed")
    assert (most.gate, most.origin, most.outcome, most.value) == ("regression <= 0.1", "baseline", "failed", 0.75)
    assert evaluate(gates[2:], before, baseline=before)[0].outcome == "passed"
    assert evaluate(gates[2:], after, baseline=[])[0].outcome == "error"


def test_lines_are_aligned_and_say_why() -> None:
    lines = gate_lines(evaluate(read_gates(["pass_rate >= 0.5", "pass_rate[agent='x'] >= 1"]), MIXED))
    assert lines == [
        "gate passed  pass_rate >= 0.5: 0.5 (2 of 4, 95% interval 0.15 to 0.85)",
        "gate error   pass_rate[agent='x'] >= 1: no rollout has agent='x'; known: codex, gemini",
    ]
