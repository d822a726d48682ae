"""Tokens and cost are found wherever an agent tells them."""

from __future__ import annotations

import pytest

from pytest_benchflow.agents import Quirks, Usage
from pytest_benchflow.agents.acp.usage import Meter, answer_models, answer_tokens
from pytest_benchflow.core.types import Json


@pytest.mark.parametrize(
    ("result", "usage"),
    [
        # Cached tokens beside the input, as Anthropic counts them: they are input too.
        (
            {"usage": {"inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 100, "totalTokens": 115}},
            Usage(110, 5, 100),
        ),
        (
            {
                "usage": {
                    "inputTokens": 10,
                    "outputTokens": 5,
                    "cachedReadTokens": 100,
                    "cachedWriteTokens": 20,
                    "totalTokens": 135,
                }
            },
            Usage(130, 5, 100),
        ),
        # Cached tokens among the input, as OpenAI counts them.
        (
            {"usage": {"inputTokens": 110, "outputTokens": 5, "cachedReadTokens": 100, "totalTokens": 115}},
            Usage(110, 5, 100),
        ),
        ({"usage": {"inputTokens": 10, "outputTokens": 5}}, Usage(10, 5)),
        ({"usage": {"inputTokens": 10, "outputTokens": 0, "totalTokens": 10}}, Usage(10, 0)),
        ({"_meta": {"quota": {"token_count": {"input_tokens": 10, "output_tokens": 5}}}}, Usage(10, 5)),
        (
            {"_meta": {"usage": {"inputTokens": 30, "outputTokens": 9}, "inputTokens": 10, "outputTokens": 3}},
            Usage(30, 9),
        ),
        ({"_meta": {"inputTokens": 10, "outputTokens": 3}}, Usage(10, 3)),
        ({"usage": None, "_meta": {"quota": {"token_count": None, "model_usage": []}}}, None),
        ({"usage": {"inputTokens": -1, "outputTokens": True}}, None),
        ({"usage": {"inputTokens": "10"}}, None),
        ({"usage": {"inputTokens": 1e300}}, None),
        ({"usage": 7, "_meta": [1]}, None),
        ({}, None),
        (None, None),
        ("text", None),
    ],
)
def test_tokens_of_an_answer(result: Json, usage: Usage | None) -> None:
    assert answer_tokens(result, Quirks()) == usage


@pytest.mark.parametrize(
    ("result", "models"),
    [
        ({"_meta": {"quota": {"model_usage": [{"model": "b"}, {"model": "a"}, {"model": None}, 7]}}}, ["a", "b"]),
        ({"_meta": {"quota": 7, "usage": 7}}, []),
        ({}, []),
    ],
)
def test_models_of_an_answer(result: Json, models: list[str]) -> None:
    assert answer_models(result, Quirks()) == models


def test_an_agent_may_count_in_places_of_its_own() -> None:
    quirks = Quirks(usage_paths=("_meta.spent",), model_paths=("_meta.spent.models",))
    result: Json = {"_meta": {"spent": {"inputTokens": 7, "models": {"b": {}, "a": {}}}}}
    assert answer_tokens(result, quirks) == Usage(7)
    assert answer_models(result, quirks) == ["a", "b"]


def test_a_running_cost_is_told_apart_by_prompt() -> None:
    meter = Meter(Quirks())
    meter.begin_turn()
    meter.update({"cost": {"amount": 0.1, "currency": "USD"}})
    meter.update({"cost": {"amount": 0.25, "currency": "USD"}})
    assert meter.end_turn({}) == Usage(cost_usd=0.25)
    meter.begin_turn()
    meter.update({"cost": {"amount": 0.3, "currency": "USD"}})
    assert meter.end_turn({}) == Usage(cost_usd=0.05)
    meter.begin_turn()
    assert meter.end_turn({}) == Usage(cost_usd=0.0)


@pytest.mark.parametrize(
    "cost",
    [{"amount": 1, "currency": "EUR"}, {"amount": "1"}, {"amount": True}, {"amount": -1}, {}, 5, None],
)
def test_a_cost_that_cannot_be_read_stays_unknown(cost: Json) -> None:
    meter = Meter(Quirks())
    meter.update({"cost": cost})
    assert meter.end_turn({}) == Usage()


def test_tokens_of_single_calls_are_added_up_where_the_answer_has_none() -> None:
    meter = Meter(Quirks())
    meter.begin_turn()
    for _ in range(2):
        meter.update({"_meta": {"usage": {"inputTokens": 10, "outputTokens": 2, "cachedReadTokens": 4}}})
    assert meter.end_turn({"stopReason": "end_turn"}) == Usage(20, 4, 8)
    meter.begin_turn()
    assert meter.end_turn({}) == Usage()


def test_totals_of_the_session_are_told_apart_by_prompt() -> None:
    meter = Meter(Quirks(usage="session"))
    first: Json = {"usage": {"inputTokens": 10, "outputTokens": 2}}
    second: Json = {"usage": {"inputTokens": 25, "outputTokens": 3, "cachedReadTokens": 5}}
    assert meter.end_turn(first) == Usage(10, 2)
    assert meter.end_turn(None) == Usage()
    assert meter.end_turn(second) == Usage(15, 1, 5)
