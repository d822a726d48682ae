"""A budget: the run ends where the money does, and says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bots import BOTS
from project import Project

from pytest_benchflow.reporting import Report

PRICE = "--bf-price=bot=1/1"


@pytest.fixture(scope="module")
def paid(new_project: Callable[..., Project]) -> Project:
    """Six tasks whose rollouts tell that they cost half a dollar, and one that tells only tokens."""
    project = new_project()
    project.write({"conftest.py": BOTS})
    for number in range(6):
        project.task(f"tasks/t{number}", instruction="RUN: echo done > done.txt\nCOST: 0.5")
    project.task("untold/a", instruction="RUN: echo done > done.txt")
    return project


def report_of(project: Project) -> Report:
    return Report.model_validate_json((project.root / "r.json").read_text())


@pytest.mark.parametrize("how", [("--bf-concurrency=4",), ("-n2",)])
def test_no_more_starts_than_the_money_pays_for(paid: Project, how: tuple[str, ...]) -> None:
    run = paid.run("tasks", "--bf-agent=bot", PRICE, "--bf-max-cost=1.2", "--bf-json=r.json", "-rs", *how)
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    statuses = [entry.status for entry in report_of(paid).rollouts]
    assert (statuses.count("passed"), statuses.count("skipped")) in ([(2, 4)] if "-n2" not in how else [(2, 4), (3, 3)])
    assert f"budget: {statuses.count('skipped')} rollouts did not start, because the money is spent" in run.outlines
    run.stdout.fnmatch_lines(["SKIPPED*budget: $1.?0 of $1.20 are spent"])


def test_a_score_stays_if_there_is_no_money_to_rerun_it(paid: Project) -> None:
    paid.task("failing/a", instruction="COST: 0.5")
    run = paid.run("failing", "--bf-agent=bot", PRICE, "--bf-max-cost=0.5", "--reruns=1", "--bf-json=r.json")
    run.assert_outcomes(failed=1)
    (entry,) = report_of(paid).rollouts
    assert (entry.status, entry.result.reward) == ("failed", 0.0)


def test_a_score_that_is_rerun_was_paid_for_all_the_same(paid: Project) -> None:
    paid.task("failing/a", instruction="COST: 0.5")
    run = paid.run("failing", "--bf-agent=bot", PRICE, "--reruns=1", "--bf-json=r.json", "--bf-gate=cost_usd <= 0.6")
    assert "gate failed  cost_usd <= 0.6: $1.00" in run.outlines
    (entry,) = report_of(paid).rollouts
    assert [attempt.status for attempt in entry.result.attempts] == ["scored"]


def test_gates_are_undecided_if_what_was_not_paid_could_change_them(paid: Project) -> None:
    options = ["tasks", "--bf-agent=bot", PRICE, "--bf-max-cost=1.2", "--bf-concurrency=1"]
    run = paid.run(*options, "--bf-gate=pass_rate >= 0.5", "--bf-gate=pass_rate >= 0.2", "--bf-gate=cost_usd <= 1.2")
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    gates = [line.split(":")[0] for line in run.outlines if line.startswith("gate ")]
    assert gates == [
        "gate undecided  pass_rate >= 0.5",
        "gate passed     pass_rate >= 0.2",
        "gate undecided  cost_usd <= 1.2",
    ]


def test_an_unknown_price_is_refused_and_not_taken_for_nothing(paid: Project) -> None:
    for how in ((), ("-n2",)):
        run = paid.run("tasks", "--bf-agent=bot", "--bf-max-cost=1", *how)
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        assert "--bf-max-cost: the price of bot with its own model is not known" in run.stderr.str()
    assert paid.run("tasks/t0", "--bf-max-cost=1").ret == pytest.ExitCode.OK  # the oracle is free
    bad = paid.run("tasks", "--bf-agent=bot", "--bf-price=bot=cheap")
    assert bad.ret == pytest.ExitCode.USAGE_ERROR
    assert "--bf-price 'bot=cheap' is not a price; write MODEL=IN/OUT" in bad.stderr.str()


def test_tokens_have_a_cost_where_prices_are_known(paid: Project) -> None:
    run = paid.run("untold", "--bf-agent=bot", "--bf-price=bot=50000/250000", "--bf-json=r.json")
    assert run.ret == pytest.ExitCode.OK
    (entry,) = report_of(paid).rollouts
    assert (entry.result.cost_usd, entry.result.cost_is_priced) == (1.0, True)
    paid.run("untold", "--bf-agent=bot", "--bf-json=r.json")
    assert report_of(paid).rollouts[0].result.cost_usd is None
