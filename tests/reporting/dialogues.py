"""Trajectories of rollouts, made up for tests."""

from __future__ import annotations

import json
from pathlib import Path

from jobs.results import result

from pytest_benchflow.core.types import Event
from pytest_benchflow.rollout import RolloutResult

DIFF = {"type": "diff", "path": "/app/a.txt", "oldText": "one\n", "newText": "two\n"}
EVENTS: list[Event] = [
    {"type": "user_message", "ts": 1.0, "text": "Make it two."},
    {"type": "agent_message", "ts": 2.0, "text": "retrying", "notice": True},
    {"type": "agent_thought", "ts": 3.0, "text": "It is "},
    {"type": "agent_thought", "ts": 3.1, "text": "one.", "continues": True},
    {"type": "agent_message", "ts": 4.0, "text": "I look."},
    {"type": "tool_call_start", "ts": 5.0, "tool_call_id": "c1", "kind": "read"},
    {"type": "tool_call_start", "ts": 5.1, "tool_call_id": "c2", "kind": "edit", "title": "Edit a.txt"},
    {
        "type": "tool_call",
        "ts": 6.0,
        "tool_call_id": "c2",
        "kind": "edit",
        "title": "Edit a.txt",
        "status": "completed",
        "content": [DIFF],
        "locations": [{"path": "/app/a.txt"}],
        "duration_sec": 0.9,
    },
    {
        "type": "tool_call",
        "ts": 6.1,
        "tool_call_id": "c1",
        "kind": "read",
        "status": "completed",
        "raw_input": {"path": "/app/a.txt"},
        "content": [{"type": "content", "content": {"type": "text", "text": "one"}}],
    },
    {"type": "agent_message", "ts": 7.0, "text": "Done."},
    {
        "type": "stop",
        "ts": 7.1,
        "stop_reason": "end_turn",
        "usage": {"input": 30, "output": 7, "cached": None, "cost_usd": 0.5},
        "models": ["flash-1"],
    },
]
"""One prompt: a notice, a thought in two parts, two calls at once that end the other way round, and a last word."""


def rollout(directory: Path, events: list[Event] | None = None, task: str = "hello", **fields: object) -> RolloutResult:
    """Return a result whose trajectory is on disk."""
    path = directory / "trajectory/acp_trajectory.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in (EVENTS if events is None else events)))
    return result(task, rollout_name=directory.name, rollout_dir=directory, **fields)  # type: ignore[arg-type]
