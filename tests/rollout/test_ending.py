"""How rollouts end that nobody planned to end."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import pytest_benchflow as bf
from pytest_benchflow import Rollout, RolloutConfig
from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.rollout.recorder import Recorder
from pytest_benchflow.tasks import load_task

NO_ROOM = "results cannot be written: No space left on device; make room, or choose another --bf-jobs-dir"


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), NO_ROOM),
        (KeyError("x"), "KeyError: 'x'; a bug in the harness; see exception.txt"),
        (SandboxError("gone", advice="come back"), "gone; come back"),
    ],
)
def test_what_ended_a_rollout_is_described(
    error: Exception, message: str, make_task: Callable[..., Path], tmp_path: Path
) -> None:
    task = load_task(make_task())
    recorder = Recorder(RolloutConfig(task_path=task.path), task, agent="oracle")
    recorder.make_directory(tmp_path / "job")
    recorder.add_error(error)
    assert recorder.error is not None
    assert recorder.error.message == message
    assert (recorder.directory / "exception.txt").exists() is isinstance(error, KeyError)


async def test_results_that_have_no_place_are_an_error(make_task: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = RolloutConfig(task_path=make_task(), sandbox="local", jobs_dir=tmp_path / "file")
    result = await bf.run(config)
    assert result.error is not None
    assert result.error.message.endswith(" cannot be made: Not a directory; choose another jobs_dir")


async def test_a_full_disk_ends_the_rollout_and_its_sandbox(
    make_task: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_benchflow.rollout.recorder.write_json", no_room)
    config = RolloutConfig(task_path=make_task(), sandbox="local", jobs_dir=tmp_path / "jobs")
    rollout = await Rollout.create(config)
    result = await rollout.run()
    assert result.error is not None
    assert (result.status, result.reward, result.error.message) == ("error", None, NO_ROOM)
    with pytest.raises(SandboxError):
        await rollout.sandbox.exec("true")
