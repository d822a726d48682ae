"""ATIF files and training data."""

from __future__ import annotations

import json
from pathlib import Path

import atif
import pytest
from reporting.dialogues import EVENTS, rollout

from pytest_benchflow.core.errors import Category, UsageError
from pytest_benchflow.core.types import Event
from pytest_benchflow.reporting import require_atif, write_atif, write_training


def _rows(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_trajectory_becomes_a_file_that_the_package_takes(tmp_path: Path) -> None:
    given = rollout(
        tmp_path / "jobs/hello__1",
        agent_name="gemini-cli",
        agent_version="1.2",
        tokens={"input": 30, "output": 7},
        cost_usd=0.5,
        rewards={"reward": 1.0},
    )
    silent = rollout(tmp_path / "jobs/silent__1", [])
    assert write_atif([given, silent], tmp_path / "atif") == 1
    (file,) = (tmp_path / "atif").iterdir()
    assert file.name == "hello__1.json"
    read = atif.Trajectory.model_validate_json(file.read_text())
    assert (read.agent.name, read.agent.version, read.agent.model_name) == ("gemini-cli", "1.2", "flash")
    assert [step.source for step in read.steps] == ["user", "system", "agent", "agent"]
    work, last = read.steps[2:]
    assert work.reasoning_content == "It is one."
    assert [call.function_name for call in work.tool_calls or []] == ["read", "edit"]
    assert work.observation is not None
    assert [each.source_call_id for each in work.observation.results] == ["3.1", "3.2"]
    assert last.metrics is not None
    assert (last.metrics.prompt_tokens, last.metrics.cost_usd, last.model_name) == (30, 0.5, "flash-1")
    assert read.final_metrics is not None
    assert read.final_metrics.total_completion_tokens == 7
    assert read.extra is not None
    assert (read.extra["reward"], read.extra["status"]) == (1.0, "passed")


def test_a_task_that_is_solved_by_its_own_solution_has_no_model_calls(tmp_path: Path) -> None:
    oracle: list[Event] = [{"type": "oracle", "command": "solve.sh", "return_code": 0, "stdout": "done"}]
    write_atif([rollout(tmp_path / "o__1", oracle, agent="oracle", model=None)], tmp_path / "atif")
    (step,) = atif.Trajectory.model_validate_json((tmp_path / "atif/o__1.json").read_text()).steps
    assert step.llm_call_count == 0
    assert step.observation is not None
    assert step.observation.results[0].content == "done"


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "atif", None)
    with pytest.raises(UsageError, match=r"pip install 'pytest-benchflow\[atif\]'"):
        require_atif()


def test_what_was_scored_is_split_by_what_it_is_good_for(tmp_path: Path) -> None:
    good = rollout(tmp_path / "good__1", rewards={"reward": 1.0, "style": 0.5})
    poor = rollout(tmp_path / "poor__1", task="poor", reward=0.5)
    broken = rollout(tmp_path / "broken__1", task="broken", category=Category.SANDBOX)
    solved = rollout(tmp_path / "oracle__1", [{"type": "oracle"}], agent="oracle")
    exported = write_training([good, poor, broken, solved], tmp_path / "data")
    assert exported.as_json() == {
        "rows": {"rollouts.jsonl": 2, "rl.jsonl": 2, "sft.jsonl": 1},
        "left_out": {"no reward": 1, "no dialogue with a model": 1},
        "not_in_sft": {"reward too low": 1},
    }
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["rl.jsonl", "rollouts.jsonl", "sft.jsonl"]
    (row,) = _rows(tmp_path / "data/sft.jsonl")
    user, work, read, edit, last = row["messages"]  # type: ignore[misc]
    assert (user["role"], user["content"]) == ("user", "Make it two.")
    assert work["reasoning_content"] == "It is one."
    names = [call["id"] for call in work["tool_calls"]]
    assert [read["tool_call_id"], edit["tool_call_id"]] == names
    assert json.loads(work["tool_calls"][0]["function"]["arguments"]) == {"path": "/app/a.txt"}
    assert (last["role"], last["content"]) == ("assistant", "Done.")
    assert "retrying" not in json.dumps(row)
    full = _rows(tmp_path / "data/rollouts.jsonl")
    assert [(each["reward"], each["rewards"]) for each in full] == [
        (1.0, {"reward": 1.0, "style": 0.5}),
        (0.5, {"reward": 0.5}),
    ]
    assert [message["role"] for message in full[0]["prompt"]] == ["user"]  # type: ignore[attr-defined]
    assert _rows(tmp_path / "data/rl.jsonl")[1]["group"] == "poor"


def test_a_lower_bar_lets_more_in(tmp_path: Path) -> None:
    poor = rollout(tmp_path / "poor__1", reward=0.5)
    assert write_training([poor], tmp_path / "data", min_reward=0.5).rows["sft.jsonl"] == 1


def test_trials_of_a_task_are_never_on_both_sides(tmp_path: Path) -> None:
    tasks = [f"task-{number}" for number in range(20)]
    results = [rollout(tmp_path / f"{task}__{trial}", task=task, trial=trial) for task in tasks for trial in (1, 2)]
    write_training(results, tmp_path / "data", holdout=0.3)
    sides = [
        {row["info"]["task"] for row in _rows(tmp_path / f"data/sft{side}.jsonl")}  # type: ignore[index]
        for side in ("", "-holdout")
    ]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 20
    assert all(sides)


def test_half_a_pair_of_surrogates_does_not_end_the_export(tmp_path: Path) -> None:
    events = [*EVENTS, {"type": "agent_message", "text": "half \ud800"}]
    given = rollout(tmp_path / "odd__1", events)  # type: ignore[arg-type]
    write_training([given], tmp_path / "data")
    assert len(_rows(tmp_path / "data/sft.jsonl")) == 1
    assert write_atif([given], tmp_path / "atif") == 1
