"""Which rollout starts when: short makespans, agents in step, nothing left to chance."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from results import result

from pytest_benchflow.jobs import Durations, Expected, auto_width, start_order


def makespan(seconds: Sequence[float], order: Sequence[int], width: int) -> float:
    """Return when the last rollout ends, if each starts as soon as one of the places is free."""
    free = [0.0] * width
    for number in order:
        heapq.heapreplace(free, free[0] + seconds[number])
    return max(free)


def bound(seconds: Sequence[float], width: int) -> float:
    return max(sum(seconds) / width, *seconds)


def skewed(count: int, seed: int) -> list[float]:
    """Most take seconds, some minutes, one of them half an hour: what agents do."""
    chance = random.Random(seed)
    return [chance.lognormvariate(4.0, 1.1) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("width", [4, 16])
def test_the_longest_first_ends_close_to_the_bound(seed: int, width: int) -> None:
    seconds = skewed(200, seed)
    order = start_order([Expected("a", each) for each in seconds], width)
    assert makespan(seconds, order, width) <= 1.1 * bound(seconds, width)


@pytest.mark.parametrize("seed", range(5))
def test_so_it_does_with_agents_that_differ(seed: int) -> None:
    slow = [10 * each for each in skewed(20, seed)]
    quick = skewed(300, seed + 100)
    seconds = [*slow, *quick]
    planned = [*(Expected("slow", each) for each in slow), *(Expected("quick", each) for each in quick)]
    assert makespan(seconds, start_order(planned, 8), 8) <= 1.1 * bound(seconds, 8)


def test_agents_keep_step_with_each_other() -> None:
    planned = [Expected("a", 10.0)] * 40 + [Expected("b", 1.0)] * 40
    order = start_order(planned, 4)
    half = [number < 40 for number in order[:40]]
    assert 15 <= sum(half) <= 25


@given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.floats(0.1, 1e4)), max_size=40), st.integers(1, 9))
def test_every_rollout_starts_once_and_the_order_is_no_chance(
    rollouts: list[tuple[str, float | None]], width: int
) -> None:
    planned = [Expected(*each) for each in rollouts]
    order = start_order(planned, width)
    assert sorted(order) == [*range(len(planned))]
    assert order == start_order(planned, width)


def test_what_nobody_knows_starts_in_the_order_given() -> None:
    assert start_order([Expected("a", None), Expected("b", None), Expected("a", None)], 2) == [0, 1, 2]


def test_a_new_task_counts_as_the_usual_one() -> None:
    planned = [Expected("a", 1.0), Expected("a", None), Expected("a", 9.0), Expected("a", 5.0)]
    assert start_order(planned, 1) == [2, 1, 3, 0]


def test_durations_are_remembered_by_task_and_by_who_ran_it(tmp_path: Path) -> None:
    durations = Durations(tmp_path / "cache" / "durations.json", tmp_path)
    task = str(tmp_path / "tasks/a")
    durations.learn([result(task_path=task, agent="gemini", timing={"total": 8.0}, reward=0.0)])
    durations.learn([result(task_path=task, agent="gemini", timing={"total": 4.0}, reward=1.0)])
    durations.learn([result(task_path=task, agent="codex", timing={"total": 100.0}, reward=None)])
    durations.save()
    again = Durations(tmp_path / "cache" / "durations.json", tmp_path)
    assert again.expect(task, "gemini", None, None) == 6.0
    assert again.expect(task, "codex", None, None) == 6.0
    assert again.expect(tmp_path / "tasks/b", "gemini", None, None) is None


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', '{"version": 1, "seconds": {"a": "x"}}', "\0"])
def test_a_broken_file_of_durations_is_an_empty_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "durations.json"
    path.write_text(content)
    durations = Durations(path, tmp_path)
    assert durations.expect("a", "b", None, None) is None
    durations.learn([result(task_path=str(tmp_path / "a"), timing={"total": 1.0}, reward=1.0)])
    durations.save()
    assert json.loads(path.read_text())["seconds"]


@pytest.mark.parametrize(
    ("is_remote", "cores", "memory_mb", "number", "reason"),
    [
        (False, 2, 32_000, 8, "2 cores"),
        (False, 1, 32_000, 4, "1 core"),
        (False, 96, 512_000, 64, "96 cores"),
        (False, 8, 2_048, 4, "2.0 GB of memory are free"),
        (False, 8, 100, 1, "0.1 GB of memory are free"),
        (True, 2, 32_000, 64, "2 cores"),
        (True, 32, 64_000, 256, "32 cores"),
        (True, 32, 1_000, 20, "1.0 GB of memory are free"),
    ],
)
def test_as_many_run_at_once_as_fit(is_remote: bool, cores: int, memory_mb: float, number: int, reason: str) -> None:
    assert auto_width(is_remote=is_remote, cores=cores, memory_mb=memory_mb) == (number, reason)
