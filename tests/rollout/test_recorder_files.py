"""Files of a rollout are written whole, and events as they happen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_benchflow.rollout.recorder import Trajectory, write_json, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"a": 1})

    def full_disk(*args: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(OSError, match="no space left"):
        write_text(path, "half")
    assert json.loads(path.read_text()) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_text_that_json_cannot_hold_as_utf8_is_still_written(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"said": "Größe ✓"})
    assert json.loads((tmp_path / "x.json").read_text("utf-8")) == {"said": "Größe ✓"}


def test_events_are_numbered_dated_and_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "trajectory" / "events.jsonl"
    trajectory = Trajectory(path)
    trajectory.append({"type": "prompt"})
    trajectory.append({"type": "answer"}, step="one")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["seq"], line["type"]) for line in lines] == [(1, "prompt"), (2, "answer")]
    assert lines[1]["step"] == "one"
    assert lines[0]["ts"] <= lines[1]["ts"]
    trajectory.close()
    trajectory.close()


def test_an_event_with_broken_text_does_not_end_the_rollout(tmp_path: Path) -> None:
    trajectory = Trajectory(tmp_path / "events.jsonl")
    trajectory.append({"type": "answer", "text": "half a pair \ud800"})
    trajectory.close()
    assert json.loads((tmp_path / "events.jsonl").read_text())["type"] == "answer"


def test_without_events_there_is_no_file(tmp_path: Path) -> None:
    Trajectory(tmp_path / "events.jsonl").close()
    assert not (tmp_path / "events.jsonl").exists()


def test_past_the_limit_only_short_events_are_written_and_then_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_benchflow.rollout.recorder.MAX_TRAJECTORY", 20_000)
    path = tmp_path / "events.jsonl"
    trajectory = Trajectory(path)
    for _ in range(10):
        trajectory.append({"type": "agent_message", "text": "x" * 5_000})
        trajectory.append({"type": "tool_call", "title": "y" * 900})
    trajectory.append({"type": "stop"})
    trajectory.close()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["seq"] for event in events] == [*range(1, len(events) + 1)]
    assert len(events) == trajectory.n_events
    assert len(events) + trajectory.n_dropped == 21
    assert [event["type"] for event in events].count("agent_message") == 4
    assert [event["type"] for event in events].count("tool_call") > 4
    assert path.stat().st_size < 26_000
