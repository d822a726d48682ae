"""The cells of a task and the names they carry in node ids."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.jobs import AgentChoice, cells, safe_name

FREE = {"oracle", "nop"}


def names(agents: list[AgentChoice], trials: int = 1) -> list[str]:
    return [cell.name for cell in cells(agents, (trials,), lambda name: name not in FREE)]


@pytest.mark.parametrize(
    ("agents", "trials", "expected"),
    [
        ([AgentChoice("oracle")], 1, ["oracle"]),
        ([AgentChoice("oracle"), AgentChoice("nop")], 1, ["oracle", "nop"]),
        ([AgentChoice("oracle")], 3, ["oracle/1", "oracle/2", "oracle/3"]),
        ([AgentChoice("gemini", ("flash", "pro"))], 1, ["gemini/flash", "gemini/pro"]),
        ([AgentChoice("gemini", ("flash",))], 2, ["gemini/flash/1", "gemini/flash/2"]),
        ([AgentChoice("gemini")], 1, ["gemini"]),
        ([AgentChoice("oracle", ("flash", "pro"))], 1, ["oracle"]),
        ([AgentChoice("gemini", ("a b", "a-b"))], 1, ["gemini/a-b", "gemini/a-b-2"]),
        ([AgentChoice("gemini", ("google/gemini-3",))], 1, ["gemini/google/gemini-3"]),
    ],
)
def test_names_leave_out_what_does_not_vary(agents: list[AgentChoice], trials: int, expected: list[str]) -> None:
    assert names(agents, trials) == expected


def test_cells_keep_the_model_as_it_was_given() -> None:
    (cell,) = cells([AgentChoice("gemini", ("a b[c]",))], (1,), lambda _: True)
    assert (cell.agent, cell.model, cell.trial) == ("gemini", "a b[c]", 1)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("gemini/flash", "gemini/flash"),
        ("a[b]", "a-b-"),
        ("a b", "a-b"),
        ("a@b", "a-b"),
        ("a::b", "a:b"),
        ("a:::b", "a:b"),
        ("qwen:7b", "qwen:7b"),
        ("", "-"),
        ("::", "-"),
        ("\x1b[31m", "-31m"),
    ],
)
def test_unsafe_characters_are_replaced(text: str, safe: str) -> None:
    assert safe_name(text) == safe


@given(st.text())
def test_no_name_holds_what_breaks_node_ids(text: str) -> None:
    name = safe_name(text)
    assert name
    assert not re.search(r"[\[\]@\s\x00-\x1f]|::", name)
    assert safe_name(name) == name


@given(st.lists(st.text(max_size=3), min_size=1, max_size=5, unique=True), st.integers(1, 3))
def test_names_of_one_task_are_distinct_and_stable(models: list[str], trials: int) -> None:
    agents = [AgentChoice("gemini", tuple(models)), AgentChoice("nop")]
    assert len(set(names(agents, trials))) == len(names(agents, trials)) == (len(models) + 1) * trials
    assert names(agents, trials) == names(agents, trials)
