"""How far a job is, from the events of its ledger."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from results import result

from pytest_benchflow.core.errors import Category
from pytest_benchflow.core.process import start_time
from pytest_benchflow.jobs import JobEvent, Ledger, LedgerReader, Progress, Running, last_tool_call
from pytest_benchflow.jobs.statistics import wilson_interval
from pytest_benchflow.reporting import log_line, status_block, status_line
from pytest_benchflow.rollout import RolloutConfig


def start(key: str, ts: float = 100.0, attempt: int = 1) -> JobEvent:
    config = RolloutConfig(task_path=Path(key), agent="gemini", model="flash", key=key)
    event = JobEvent.of_config("start", config, key, attempt)
    return JobEvent(**{**{name: getattr(event, name) for name in JobEvent.__slots__}, "ts": ts})


def phase(key: str, name: str) -> JobEvent:
    return JobEvent(kind="phase", ts=101.0, key=key, rollout=f"{key}__1", phase=name)


def end(key: str, reward: float | None = 1.0, **more: object) -> JobEvent:
    return JobEvent.of_result("end", result(key, reward, key=key, **more), attempt=1)  # type: ignore[arg-type]


def test_what_runs_what_ended_and_what_it_cost() -> None:
    progress = Progress()
    progress.learn([JobEvent(kind="begin", ts=100.0, total=6), start("a"), start("b", 90.0), start("c"), start("d")])
    progress.learn([phase("b", "execute"), end("a", cost_usd=0.5), end("c", 0.0, cost_usd=0.25)])
    failed = result("d", key="d", category=Category.SANDBOX, retryable=True, cost_usd=1.0)
    progress.learn([JobEvent.of_result("retry", failed, attempt=1), start("d", 130.0, 2)])
    progress.learn([JobEvent.of_result("end", result("e", key="e", cost_usd=9.0), reused=True)])
    assert [(each.task, each.phase, each.attempt) for each in progress.longest] == [
        ("b", "execute", 1),
        ("d", "start", 2),
    ]
    rate, interval = progress.pass_rate or (0, (0, 0))
    assert rate == pytest.approx(2 / 3)
    assert interval[0] < rate < interval[1]
    assert (progress.n_done, progress.n_reused, progress.n_retries, progress.cost_usd) == (3, 1, 1, 1.75)
    assert status_line(progress, 160.0) == (
        "3 of 6 done · 2 running · 2 passed · 1 failed · 1 of an earlier run · 1 tried again"
        f" · pass rate 67% ({interval[0]:.0%}–{interval[1]:.0%}) · reward 0.67 · $1.75 · 1 min 00 s"
    )
    assert log_line(progress, 160.0).endswith(" · longest: b (execute, 1 min 10 s)")
    assert status_line(progress, 0.0).endswith("0.0 s")  # a clock that was set back


def test_trials_of_few_tasks_say_less_than_as_many_tasks() -> None:
    progress = Progress()
    trials = [(task, trial, reward) for task, reward in (("a", 1.0), ("b", 0.0)) for trial in range(20)]
    progress.learn([end(f"{task}{n}", reward, task_path=f"/tasks/{task}") for task, n, reward in trials])
    assert progress.pass_rate == (0.5, wilson_interval(1, 2))


def test_nop_passes_a_selftest_by_failing() -> None:
    progress = Progress()
    ends = [end(f"{agent}{reward}", reward, agent=agent) for agent in ("nop", "oracle") for reward in (0.0, 1.0)]
    broken = JobEvent.of_result("end", result("x", key="x", agent="nop", category=Category.SANDBOX), attempt=1)
    progress.learn([JobEvent(kind="begin", ts=100.0, total=5, selftest=True), *ends, broken])
    assert progress.statuses == {"passed": 2, "failed": 2, "error": 1}
    progress.learn([JobEvent(kind="begin", ts=100.0, total=5), ends[0]])
    assert progress.statuses == {"failed": 1}


def test_a_continued_job_begins_anew_and_one_without_its_process_is_dead() -> None:
    progress = Progress()
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    here = socket.gethostname()
    for host, pid, since, dead in (
        (here, int(gone.stdout), None, True),
        (here, os.getpid(), None, False),
        (here, os.getpid(), start_time(os.getpid()), False),
        (here, os.getpid(), "another of the same number", True),
        ("elsewhere", int(gone.stdout), None, False),
    ):
        begin = JobEvent(kind="begin", ts=1.0, total=2, host=host, pid=pid, process_start=since)
        progress.learn([start("a"), end("b"), begin])
        assert (progress.n_done, progress.running, progress.is_dead) == (0, {}, dead)


def test_a_line_that_a_full_disk_cut_short_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, write = Ledger(tmp_path), os.write
    ledger.append(end("a"))
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[: len(data) // 2]))
    ledger.append(end("b"))
    monkeypatch.undo()
    ledger.append(end("c"))
    assert [event.key for event in LedgerReader(ledger.path).news()] == ["a", "c"]


def test_the_block_fits_and_obeys_nobody_else() -> None:
    progress = Progress()
    progress.learn([JobEvent(kind="begin", ts=100.0, total=9), *(start(f"task-{number}" * 9) for number in range(9))])
    for width, height in ((120, 40), (50, 12), (20, 6)):
        lines = status_block(progress, 200.0, width=width, height=height, colors=False, last_call=lambda _: "x" * 500)
        assert all(len(line) <= width for line in lines)
        assert len(lines) <= max(1, height // 3)


def test_the_last_tool_call_is_one_printable_line(tmp_path: Path) -> None:
    running = Running("k", "t", "gemini", 0.0, directory="t__1")
    assert last_tool_call(tmp_path, running) is None
    path = tmp_path / "t__1/trajectory/acp_trajectory.jsonl"
    path.parent.mkdir(parents=True)
    events = [
        {"type": "tool_call_start", "title": "ls"},
        {"type": "tool_call_start", "title": "npm \x1b]0;owned\x07\x1b[2Jtest\nmore" + "!" * 99},
        {"type": "agent_message", "text": "x" * 20_000},
        {"type": "tool_call", "title": "too far away"},
    ]
    lines = [json.dumps(event) for event in events]
    path.write_text("\n".join(lines[:2]) + '\n{"type": "tool_call", "tit')
    shown = last_tool_call(tmp_path, running) or ""
    assert shown.startswith("npm test more!!")
    assert shown.isprintable()
    assert len(shown) <= 60
    path.write_text("\n".join(lines[:3]))
    assert last_tool_call(tmp_path, running) is None  # only the end is looked at
