"""A job as rollouts leave it on disk, with everything that pages show and everything that they must not fall for."""

from __future__ import annotations

import json
from pathlib import Path

from jobs.results import result, write_result

from pytest_benchflow.core.errors import Category
from pytest_benchflow.core.types import Json

Events = list[dict[str, Json]]
HOSTILE = (
    "<script>window.hacked = 'script'</script><img src=x onerror=\"window.hacked = 'image'\">"
    "<svg onload=\"window.hacked = 'svg'\"></svg><a href=\"javascript:window.hacked = 'link'\">a link</a>"
    "</script><style>body { display: none }</style>"
    "<iframe srcdoc=\"<script>parent.hacked = 'frame'</script>\"></iframe>"
)
"""Markup of every kind that would do something if a page took it for its own."""
DISGUISED = "\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x07 safe\u202egpj.exe\u2066\x00\x08 \u200bzero"
"""Terminal colours, a terminal link, text that turns around, control characters, text of no width."""


def write_job(directory: Path, worse: str = "") -> Path:
    """Write the job: two agents on three tasks, a hostile one, and what else can become; no agent passes `worse`."""
    for agent, model in (("gemini", "flash"), ("codex", "mini")):
        for number, task in enumerate(("sort-words", "sql-report", "cache")):
            passed = (agent == "gemini" or number == 0) and task != worse
            failing = [] if passed else ["order", "empty_file"]
            _write(
                directory,
                task,
                1.0 if passed else 0.25 * number,
                agent=agent,
                model=model,
                cost_usd=0.02 * (number + 1) * (1 if passed else 2.5),
                checks={"passed": 3, "failed": len(failing), "failing": failing},
            )
    _write(directory, "broken-image", None, category=Category.BUILD)
    _write(directory, HOSTILE, 0.0, agent=HOSTILE, model="m", events=_hostile_events(), rollout_name="hostile__1")
    finding = {"kind": "tests_sought", "message": "looked for the tests in /proc/1/root", "paths": ["/proc/1/root"]}
    _write(directory, "cheater", 1.0, integrity=[finding], agent="gemini", model="flash")
    criteria = [
        {"name": "clear", "value": 0.75, "reason": "Short sentences.", "weight": 2},
        {"name": "correct", "value": 0, "reason": f"No. {HOSTILE}"},
    ]
    _write(directory, "essay", 0.5, criteria=criteria, agent="codex", model="mini")
    return directory


def _write(
    directory: Path, task: str, reward: float | None, *, events: list[Json] | None = None, **more: object
) -> None:
    agent = str(more.get("agent", "gemini"))
    name = str(more.pop("rollout_name", f"{task}-{agent}__1"))
    place = directory / name
    fields: dict[str, object] = {
        "rollout_name": name,
        "key": f"tasks/{task}/task.toml::{agent}",
        "rollout_dir": str(place),
        "timing": {"setup": 0.1, "start": 0.5, "install_agent": 0.2, "execute": 7.5, "verify": 1.5, "total": 10.0},
        "tokens": {"input": 12_000, "output": 800, "cached": 9_000},
        "n_tool_calls": 3,
        "n_prompts": 1,
    }
    write_result(place, result(task, reward, **{**fields, **more}))  # type: ignore[arg-type]
    for folder in ("trajectory", "verifier"):
        (place / folder).mkdir()
    lines = [json.dumps({"seq": n, "ts": 100.0 + n, **each}) for n, each in enumerate(events or _events(), 1)]
    (place / "trajectory/acp_trajectory.jsonl").write_text("\n".join(lines) + "\n")
    (place / "verifier/test-stdout.txt").write_text(f"3 checks\n{HOSTILE if events else ''}\n")
    (place / "config.json").write_text(json.dumps({"rollout_name": name, "agent": agent}))


def _events() -> Events:
    """Return an ordinary trajectory."""
    edit = {"type": "diff", "path": "/app/a.py", "oldText": "one\ntwo\nthree\n", "newText": "one\n2\nthree\nfour\n"}
    output = {"type": "content", "content": {"type": "text", "text": "total 4\na.py"}}
    return [
        {"type": "user_message", "text": "Sort the words.\n\n- keep `case`\n- **no** duplicates"},
        {"type": "agent_thought", "text": "I should look first."},
        {"type": "tool_call_start", "tool_call_id": "1", "kind": "execute", "title": "ls"},
        {
            "type": "tool_call", "tool_call_id": "1", "kind": "execute", "title": "ls", "status": "completed",
            "raw_input": {"command": "ls -l"}, "content": [output], "duration_sec": 0.25,
        },
        {
            "type": "tool_call", "tool_call_id": "2", "kind": "edit", "title": "Edit a.py", "status": "completed",
            "content": [edit],
        },
        {"type": "tool_call", "tool_call_id": "3", "kind": "read", "title": "Read b", "status": "failed"},
        {"type": "agent_message", "text": "The words are sorted, "},
        {"type": "agent_message", "text": "each once.\n\n```python\nprint('done')\n```", "continues": True},
        {"type": "stop", "stop_reason": "end_turn", "usage": {"input": 12000, "output": 800}, "models": ["flash"]},
    ]  # fmt: skip


def _hostile_events() -> Events:
    """Return a trajectory with markup and disguises wherever an agent can put text."""
    call: dict[str, Json] = {
        "type": "tool_call",
        "tool_call_id": HOSTILE,
        "kind": HOSTILE,
        "title": HOSTILE,
        "status": HOSTILE,
        "raw_input": {"command": f"{HOSTILE};", HOSTILE: HOSTILE},
        "raw_output": HOSTILE,
        "content": [{"type": "diff", "path": HOSTILE, "oldText": HOSTILE, "newText": DISGUISED}, {"type": HOSTILE}],
        "locations": [{"path": HOSTILE}],
    }
    return [
        {"type": "user_message", "text": HOSTILE},
        {"type": "agent_message", "text": f"[click](javascript:alert(1)) ![x](http://evil.example/x.png)\n{HOSTILE}"},
        {"type": "agent_message", "text": DISGUISED, "notice": True},
        {"type": "agent_thought", "text": HOSTILE},
        call,
        {"type": HOSTILE, "message": HOSTILE},
        {"type": "constructor", "message": "not a view"},
        {"type": "__proto__"},
        {"type": "plan", "entries": [{"status": HOSTILE, "content": HOSTILE}]},
        {"type": "agent_error", "code": HOSTILE, "message": HOSTILE},
    ]
