"""The index of a job's scores: believed only as long as every file that it speaks of is what it was."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from project import write_task
from results import result, write_result

from pytest_benchflow.jobs import Job, ResumeMismatch
from pytest_benchflow.jobs.score_index import SCORES
from pytest_benchflow.rollout import RolloutConfig, RolloutResult
from pytest_benchflow.tasks import Task, load_task

KEY = "tasks/hello/task.toml::gemini/flash"


class Earlier:
    """A job with one score, of a rollout that this describes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.task: Task = load_task(write_task(root / "tasks/hello"))
        self.config = RolloutConfig(task_path=self.task.path, agent="gemini", model="flash", key=KEY)
        self.rollout = root / "jobs/mine" / self.config.name_for("hello")
        self.score = result(task_digest=self.task.digest(), key=KEY, rollout_dir=self.rollout)
        write_result(self.rollout, self.score)
        (self.rollout / "config.json").write_text(json.dumps(self.config.public()))

    def job(self) -> Job:
        return Job(self.rollout.parent, is_resumed=True)

    def look_up(self) -> RolloutResult | None:
        """Ask the index as another process would."""
        job = self.job()
        return job.unchanged(KEY, job.scores.fingerprint(self.config), str(self.task.file))

    def finished(self) -> RolloutResult | None:
        return self.job().finished(self.config, load_task(self.task.path))


@pytest.fixture
def earlier(tmp_path: Path) -> Earlier:
    job = Earlier(tmp_path)
    time.sleep(0.05)  # what has changed a moment ago is not indexed
    assert job.look_up() is None
    assert job.finished() == job.score
    return job


def test_a_score_that_was_read_once_is_known_by_its_files(earlier: Earlier) -> None:
    assert earlier.look_up() == earlier.score
    events = (earlier.rollout.parent / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(event)["reused"] for event in events] == [True, True]
    facts = earlier.job().scores.facts(earlier.rollout.name)
    assert facts == (KEY, "gemini", "flash", True)


def test_a_task_that_was_changed_a_moment_ago_is_not_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_benchflow.tasks.digest.SETTLED_NS", 3_600_000_000_000)
    job = Earlier(tmp_path)
    assert job.finished() == job.score
    assert not (job.rollout.parent / SCORES).exists()


def same_size(path: Path) -> None:
    """Change a file as the most careful of editors would, so that only its inode or its change time tells."""
    before = path.stat()
    path.write_text(path.read_text().swapcase())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        lambda job: same_size(job.task.path / "tests/test.sh"),
        lambda job: same_size(job.task.path / "task.toml"),
        lambda job: (job.task.path / "solution/more").write_text(""),
        lambda job: (job.task.path / "solution/solve.sh").unlink(),
        lambda job: same_size(job.rollout / "result.json"),
        lambda job: (job.rollout / "result.json").unlink(),
        lambda job: (job.rollout.parent / job.config.name_for("hello", 2)).mkdir(),
        lambda job: (job.rollout.parent / SCORES).write_bytes((job.rollout.parent / SCORES).read_bytes()[:-9]),
        lambda job: (job.rollout.parent / SCORES).write_text('[]\n{}\n"x"\n[1,2,3,4,5,6,7,8,9]\n'),
        lambda job: setattr(job, "config", replace(job.config, timeout_multiplier=2.0)),
        lambda job: setattr(job, "config", replace(job.config, model="pro")),
    ],
)
def test_it_tells_nothing_once_anything_has_changed(earlier: Earlier, change: Callable[[Earlier], object]) -> None:
    change(earlier)
    assert earlier.look_up() is None


def test_what_differs_only_in_task_place_and_number_has_one_fingerprint(earlier: Earlier) -> None:
    fingerprint = earlier.job().scores.fingerprint
    same = replace(earlier.config, task_path=Path("other"), trial=2, key="other", jobs_dir=Path("x"), rollout_name="y")
    assert fingerprint(same) == fingerprint(earlier.config)
    assert fingerprint(replace(earlier.config, agent_env={"A": "1"})) != fingerprint(earlier.config)


def test_a_changed_task_is_refused_and_a_line_cut_short_costs_no_other(earlier: Earlier) -> None:
    index = earlier.rollout.parent / SCORES
    index.write_bytes(index.read_bytes()[:-9])
    assert earlier.finished() == earlier.score
    assert earlier.look_up() == earlier.score
    same_size(earlier.task.path / "tests/test.sh")
    with pytest.raises(ResumeMismatch, match="another version of the task"):
        earlier.finished()
