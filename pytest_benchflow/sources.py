"""Add the tasks of git repositories and of a job file to what pytest collects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.errors import BenchflowError

if TYPE_CHECKING:
    from pytest_benchflow.this_run import Run


def add_sources(run: Run) -> None:
    """Collect what `--bf-source` and the job file name, instead of the default paths if no path was given."""
    listed = [str(path) for path in run.job.tasks] if run.job is not None else []
    if not run.settings.sources and not listed:
        return
    given = run.config.option.file_or_dir
    kept = run.config.args if given else []
    run.config.args = [*kept, *listed, *run.sources]


def fetched_sources(run: Run) -> list[str]:
    """Fetch the sources and return their local paths; workers are handed those of their controller."""
    handed: list[str] | None = getattr(run.config, "workerinput", {}).get("bf_sources")
    if handed is not None:
        return handed
    from pytest_benchflow.cache import cache_directory
    from pytest_benchflow.tasks import fetch_source

    try:
        fetched = [fetch_source(source, cache_directory() / "sources") for source in run.settings.sources]
    except BenchflowError as error:
        raise pytest.UsageError(f"--bf-source: {error}") from None
    run.notes += [source.note for source in fetched if source.note is not None]
    return [str(source.path) for source in fetched]
