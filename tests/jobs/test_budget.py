"""The budget as a rule of the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.jobs import Budget, JobEvent, require_prices
from pytest_benchflow.providers import Prices
from pytest_benchflow.rollout import RolloutConfig

BOT = RolloutConfig(task_path="/tasks/any", agent="gemini", model="flash")
ORACLE = RolloutConfig(task_path="/tasks/any", agent="oracle")


def start(key: str) -> JobEvent:
    return JobEvent(kind="start", ts=0, key=key, agent="gemini", model="flash")


def end(key: str, cost: float | None, kind: str = "end", **more: object) -> JobEvent:
    return JobEvent(kind=kind, ts=0, key=key, cost_usd=cost, **more)  # type: ignore[arg-type]


def budget(limit: float, guess: float = 1.0, *events: JobEvent) -> Budget:
    rule = Budget(limit, lambda agent, model: guess)
    for event in events:
        rule.learn(event)
    return rule


@pytest.mark.parametrize(
    ("events", "refused", "waits"),
    [
        ([], False, False),
        ([start("a")], False, False),
        ([start("a"), start("b"), start("c")], False, True),
        ([start("a"), end("a", 2.9)], True, False),
        ([start("a"), end("a", 3.5)], True, False),
        ([start("a"), end("a", 0.1), *(start(f"{n}") for n in range(20))], False, False),
        ([start("a"), end("a", 1.0, "retry"), start("a"), end("a", 1.0)], False, False),
        ([start("a"), end("a", 1.5, "retry"), start("a"), end("a", 1.0)], True, False),
        ([end("a", 9.0, reused=True)], False, False),
        ([start("a"), end("a", None, cost_is_partial=True), start("b"), end("b", 2.5)], True, False),
        (
            [start("a"), end("a", 1.0, cost_is_partial=True), start("b"), end("b", 1.5, cost_is_partial=True)],
            True,
            False,
        ),
        ([start("a"), end("a", 0.1, cost_is_partial=True), start("b"), end("b", 1.5)], True, False),
        ([start("a"), end("a", None, tokens=5), start("b"), end("b", 2.5)], True, False),
    ],
)
def test_it_counts_attempts_and_what_is_under_way(events: list[JobEvent], refused: bool, waits: bool) -> None:
    rule = budget(3.0, 1.0, *events)
    assert (rule.refusal(BOT) is not None) == refused
    assert rule.must_wait(BOT) == waits or refused
    assert rule.refusal(ORACLE) is None
    assert not rule.must_wait(ORACLE)


def test_what_judges_of_free_agents_cost_is_spent_too() -> None:
    begun = JobEvent(kind="start", ts=0, key="a", agent="oracle")
    rule = budget(1.0, 1.0, begun, end("a", 0.6))
    assert rule.must_wait(ORACLE) is False
    assert rule.refusal(ORACLE) is not None
    rule.learn(replace(begun, key="b"))
    assert rule.must_wait(ORACLE)
    assert budget(1.0, 1.0, begun, end("a", None)).refusal(ORACLE) is None


def test_a_guess_above_the_limit_still_lets_the_first_one_run() -> None:
    assert budget(0.5, 1.0).refusal(BOT) is None
    assert budget(0.5, 1.0, start("a")).must_wait(BOT)


@pytest.mark.parametrize(
    ("texts", "models", "cost"),
    [
        (["m=1/10"], ["m"], 0.3),
        (["m=1/10/0.5"], ["m"], 0.25),
        (["agent=2/0"], [None], 0.4),
        (["agent=2/0"], ["m"], 0.4),
        (["m=1/10", "n=2/10"], ["m", "n"], 0.5),
        (["m=1/10"], ["m", "n"], None),
        (["openai/m=1/10"], ["openai/m"], 0.3),
        (["m=1/10"], ["openai/m"], 0.3),
        ([], ["gpt-5"], None),
    ],
)
def test_prices_are_found_by_model_or_agent(texts: list[str], models: list[str | None], cost: float | None) -> None:
    found = Prices.read(texts).cost("agent", models, input=200_000, output=10_000, cached=100_000)
    assert found == (None if cost is None else pytest.approx(cost))


def test_the_list_knows_common_models_without_a_network() -> None:
    pytest.importorskip("genai_prices")
    prices = Prices.read(["auto"])
    for model in (
        "gpt-5",
        "claude-sonnet-4-5",
        "gemini-2.5-flash",
        "google/gemini-2.5-flash",
        "deepseek/deepseek-chat",
    ):
        cost = prices.cost("agent", [model], input=1_000_000, output=1_000_000)
        assert cost is not None
        assert 0.1 < cost < 100
    assert prices.cost("agent", ["no-such-model"], input=1, output=1) is None


@pytest.mark.parametrize("text", ["m", "m=1", "m=a/b", "=1/2", "m=1/2/3/4", "m=-1/2", "m=nan/2", "m=1/inf"])
def test_what_is_not_a_price_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a price; write MODEL=IN/OUT"):
        Prices.read([text])


def test_a_budget_needs_the_price_of_everybody() -> None:
    require_prices(Prices.read(["gemini=1/2"]), {("gemini", None), ("oracle", None)})
    with pytest.raises(UsageError, match="the price of codex with its own model, gemini with x is not known"):
        require_prices(Prices.read([]), {("gemini", "x"), ("codex", None)})
