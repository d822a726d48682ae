"""The ledger of a job: what its readers see, from whichever process it comes, and the rules that act on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from project import write_task
from results import result

from pytest_benchflow.core.errors import BenchflowError, CannotRunHere, Category
from pytest_benchflow.jobs import Job, JobEvent, Ledger, LedgerReader
from pytest_benchflow.rollout import Resources, RolloutConfig
from pytest_benchflow.tasks import load_task


def end(key: str) -> JobEvent:
    return JobEvent.of_result("end", result(key=key), attempt=1)


def test_a_reader_sees_what_every_process_appends_and_nothing_twice(tmp_path: Path) -> None:
    ours, theirs, reader = Ledger(tmp_path), Ledger(tmp_path), LedgerReader(tmp_path / "ledger.jsonl")
    assert [*reader.news()] == []
    ours.begin(2)
    ours.append(end("a"))
    theirs.append(end("b"))
    events = [*reader.news()]
    assert [(event.kind, event.total, event.key) for event in events] == [
        ("begin", 2, ""),
        ("end", None, "a"),
        ("end", None, "b"),
    ]
    assert (events[1].status, events[1].reward, events[1].agent) == ("passed", 1.0, "gemini")
    assert [*reader.news()] == []
    assert [event.key for event in ours.news()] == ["", "a", "b"]
    ours.close()
    theirs.close()


def test_a_line_that_is_half_written_or_broken_disturbs_nobody(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    reader = LedgerReader(path)
    path.write_text('{"kind": "begin", "ts": 1, "of_a_later_release": 1}\nnot json\n[1]\n{"kind": "end", "ts"')
    assert [event.kind for event in reader.news()] == ["begin"]
    with path.open("a") as file:
        file.write(': 2, "key": "x"}\n')
    assert [event.key for event in reader.news()] == ["x"]


def test_a_reader_follows_a_job_that_is_continued(tmp_path: Path) -> None:
    ledger, reader = Ledger(tmp_path), LedgerReader(tmp_path / "ledger.jsonl")
    ledger.begin(5)
    assert [event.total for event in reader.news()] == [5]
    Ledger(tmp_path).begin(3)
    assert [event.total for event in reader.news()] == [3]


def test_a_ledger_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "gone")
    ledger.begin(1)
    ledger.append(end("a"))
    assert ledger.news() == []


class OnlyOne:
    """Refuses every rollout after the first one that ended."""

    def __init__(self, reason: BenchflowError | CannotRunHere) -> None:
        self.reason = reason
        self.n_ended = 0

    def learn(self, event: JobEvent) -> None:
        self.n_ended += event.kind == "end"

    def refusal(self, config: RolloutConfig) -> BenchflowError | CannotRunHere | None:
        return self.reason if self.n_ended else None


@pytest.mark.parametrize(
    ("reason", "status"),
    [(CannotRunHere("enough"), "skipped"), (BenchflowError("broken", category=Category.SANDBOX), "error")],
)
def test_a_rule_keeps_rollouts_from_starting(
    tmp_path: Path, reason: BenchflowError | CannotRunHere, status: str
) -> None:
    path = write_task(tmp_path / "hello")
    task, job = load_task(path), Job(tmp_path / "jobs" / "job")
    job.directory.mkdir(parents=True)
    job.rules.append(OnlyOne(reason))

    async def run() -> list[str]:
        resources = Resources.with_defaults()
        try:
            configs = (RolloutConfig(task_path=path, agent="oracle", sandbox="local", key=key) for key in "ab")
            return [(await job.run(config, task, resources)).status for config in configs]
        finally:
            await resources.aclose()

    assert asyncio.run(run()) == ["passed", status]
    assert sum(each.is_dir() for each in job.directory.iterdir()) == 1
    events = [*LedgerReader(job.ledger.path).news()]
    assert [event.key for event in events if event.kind == "end"] == ["a", "b"]
    assert {event.phase for event in events if event.kind == "phase"} >= {"setup", "start", "verify"}
