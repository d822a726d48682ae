"""Keep pytest from importing conftest files of verifiers and agents, as it does below every directory it is given."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from pytest_benchflow.collection import TASK_FILES
from pytest_benchflow.left_results import holds_results


@contextmanager
def outside_of_tasks(early_config: pytest.Config) -> Generator[None]:
    """Let arguments inside of tasks and results stand for these while pytest looks for the first conftest files."""
    namespace, here = early_config.known_args_namespace, str(early_config.invocation_params.dir)
    given: list[str] = namespace.file_or_dir
    if given:
        namespace.file_or_dir = [_whole(os.path.join(here, arg.partition("::")[0])) or arg for arg in given]
    elif not early_config.getini("testpaths") and (whole := _whole(here)) is not None:
        namespace.file_or_dir = [whole]
    try:
        yield
    finally:
        namespace.file_or_dir = given


def _whole(path: str) -> str | None:
    """Return the file of the task, or the directory of the results, that a path is in; None if it is in none."""
    directory = os.path.normpath(path)
    while directory != (above := os.path.dirname(directory)):
        if holds_results(directory):
            return directory
        if any(os.path.lexists(f"{directory}/{name}") for name in TASK_FILES) and (file := _checked(directory)):
            return file
        directory = above
    return None


def _checked(directory: str) -> str | None:
    """Return the task file of a directory, unless it is some other tool's."""
    from pytest_benchflow.tasks import TaskError, TaskIndex, find_task_file

    try:
        is_task = TaskIndex().head(directory) is not None
    except TaskError:
        is_task = True
    file = find_task_file(directory) if is_task else None
    return None if file is None else str(file)
