"""A report of what is on disk: of a `--bf-json` file, of a job's directory, or of a folder of jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from pydantic import ValidationError

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.jobs import latest_attempts, read_results
from pytest_benchflow.reporting.report import Report, entries_of, group
from pytest_benchflow.rollout import RolloutResult


def read_report(path: Path) -> Report:
    """Return the report that a file holds, or that the results below a directory make."""
    return _of_directory(path) if path.is_dir() else _of_file(path)


def _of_directory(directory: Path) -> Report:
    """Return a report of results as they are: what pytest made of them, such as a quarantine, is not on disk."""
    stored = read_results(directory)
    results = latest_attempts(stored.results)
    if not results:
        broken = len(stored.unreadable)
        which = f"; {broken} cannot be read, for example {stored.unreadable[0]}" if broken else ""
        advice = "name a job, a folder of jobs or a --bf-json file"
        raise UsageError(f"there is no result in {directory}{which}", advice=advice)
    return report_of(results, directory)


def report_of(results: Sequence[RolloutResult], directory: Path) -> Report:
    """Return a report of results that are in a directory; there may be none yet."""
    entries = entries_of(results)
    return Report(
        tool_version=version("pytest-benchflow"),
        started_at=min((result.started_at for result in results), default=""),
        finished_at=max((result.finished_at for result in results), default=""),
        exit_status=None,
        job_dir=str(directory.absolute()),
        summary=group(entries),
        rollouts=entries,
    )


def _of_file(path: Path) -> Report:
    advice = "name a job's directory or a file that --bf-json wrote"
    try:
        data: object = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", advice=advice) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", advice=advice) from None
    try:
        return Report.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise UsageError(f"{path} is not a report: {where}: {first['msg']}", advice=advice) from None
