"""The job's directory: one per run, shared by all processes of the run and by no other run."""

from __future__ import annotations

import json
import os
import time
from itertools import count
from pathlib import Path

from pytest_benchflow.core.errors import UsageError

MARKER = "job.json"


def claim_job_directory(jobs_dir: Path, name: str, run_id: str, *, exact: bool) -> Path:
    """Make or join the directory of the run `run_id`; a name that another run took is refused if `exact`, else varied.

    Every process of a run finds the same directory, because the marker in it names the run it belongs to.
    """
    for number in count(1):
        directory = jobs_dir / (name if number == 1 else f"{name}-{number}")
        try:
            claimed = _claim(directory, run_id)
        except OSError as error:
            raise UsageError(
                f"{directory} cannot be made: {error.strerror}", advice="choose another --bf-jobs-dir"
            ) from None
        if claimed:
            return directory
        if exact:
            raise UsageError(f"{directory} exists already", advice="choose another --bf-job-name or remove it")
    raise AssertionError("unreachable")


def _claim(directory: Path, run_id: str) -> bool:
    directory.mkdir(parents=True, exist_ok=True)
    marker = directory / MARKER
    if not marker.exists() and any(MARKER not in path.name for path in directory.iterdir()):
        return False  # somebody's own directory
    draft = directory / f".{MARKER}.{os.getpid()}"
    draft.write_text(json.dumps({"run": run_id, "created": time.time()}))
    try:
        os.link(draft, marker)
    except FileExistsError:
        return _owner(marker) == run_id
    finally:
        draft.unlink()
    return True


def _owner(marker: Path) -> str | None:
    try:
        data: object = json.loads(marker.read_text())
    except (OSError, ValueError):
        return None
    return data.get("run") if isinstance(data, dict) else None
