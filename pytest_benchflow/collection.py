"""Find tasks among pytest's directories, cheaply for the many directories that hold none."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_benchflow.items import TaskFile
    from pytest_benchflow.tasks import TaskError, TaskHead

TASK_FILES = ("task.toml", "task.md")


def collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claim a task directory, so that nothing inside is run on the host, or a folder of tasks; leave all others."""
    if _may_be_task(str(path)):
        found = _read(str(path), parent)
        if found is not None:
            node: TaskDirectory = TaskDirectory.from_parent(parent, path=path)
            node.found = found
            return node
    if _holds_tasks(path):
        return TaskFolder.from_parent(parent, path=path)
    return None


def collect_file(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claim a task file that was given as an argument from outside the root directory."""
    if path.name not in TASK_FILES:
        return None
    found = _read(str(path.parent), parent)
    return None if found is None or _task_file(found, path.parent) != path else _node(parent, path, found)


class TaskDirectory(pytest.Directory):
    """A task: it yields its task file and hides everything else from pytest."""

    found: TaskHead | TaskError

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield the task file alone."""
        yield _node(self, _task_file(self.found, self.path), self.found)


class TaskFolder(pytest.Directory):
    """A folder with tasks in it. Tasks become file nodes at once; a node per directory would triple the cost."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield what is inside, sorted by name."""
        session, config, ihook = self.session, self.config, self.ihook
        try:
            entries = _entries(self.path)
        except OSError as error:
            raise self.CollectError(f"{self.path} cannot be read: {error.strerror}; check its permissions") from None
        for entry in entries:
            path = Path(entry.path)
            is_dir = entry.is_dir()
            if not session.isinitpath(path, with_parents=is_dir):
                if ihook.pytest_ignore_collect(collection_path=path, config=config):
                    continue
                if is_dir and (node := self._task_in(entry)) is not None:
                    yield node
                    continue
            if is_dir and _contains_itself(entry):
                yield BrokenLink.from_parent(self, path=path)
            elif is_dir:
                directory: pytest.Collector | None = ihook.pytest_collect_directory(path=path, parent=self)
                if directory is not None:
                    yield directory
            elif entry.is_file():
                yield from ihook.pytest_collect_file(file_path=path, parent=self)

    def _task_in(self, entry: os.DirEntry[str]) -> TaskFile | None:
        """Return the file node of a task, unless the directory must be a node itself for its conftest's sake."""
        if not _may_be_task(entry.path) or os.path.lexists(f"{entry.path}/conftest.py"):
            return None
        found = _read(entry.path, self)
        return None if found is None else _node(self, _task_file(found, Path(entry.path)), found)


class BrokenLink(pytest.File):
    """A link to a directory that contains it: following it would never end."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Refuse it."""
        raise self.CollectError(f"{self.path} links to {self.path.resolve()}, which contains it; remove the link")


def _node(parent: pytest.Collector, path: Path, found: TaskHead | TaskError) -> TaskFile:
    from pytest_benchflow.items import TaskFile

    return TaskFile.of(parent, path, found)


def _read(directory: str, node: pytest.Collector) -> TaskHead | TaskError | None:
    from pytest_benchflow.run import get_run
    from pytest_benchflow.tasks import TaskError

    run = get_run(node.config)
    try:
        return run.index.head(directory, strict=run.settings.strict)
    except TaskError as error:
        return error


def _task_file(found: TaskHead | TaskError, directory: Path) -> Path:
    if not isinstance(found, Exception):
        return Path(found.file)
    from pytest_benchflow.tasks import find_task_file

    return Path(find_task_file(directory) or directory / TASK_FILES[0])


def _may_be_task(directory: str) -> bool:
    return any(os.path.lexists(f"{directory}/{name}") for name in TASK_FILES)


def _holds_tasks(path: Path) -> bool:
    if os.path.lexists(path / "__init__.py"):
        return False
    try:
        return any(_may_be_task(entry.path) for entry in _entries(path, sort=False) if entry.is_dir())
    except OSError:
        return True  # the folder's own node says what is wrong


def _entries(path: Path, *, sort: bool = True) -> list[os.DirEntry[str]]:
    with os.scandir(path) as found:
        entries = [entry for entry in found if _is_reachable(entry)]
    return sorted(entries, key=lambda entry: entry.name) if sort else entries


def _is_reachable(entry: os.DirEntry[str]) -> bool:
    try:
        entry.is_file()
    except OSError:
        return False
    return True


def _contains_itself(entry: os.DirEntry[str]) -> bool:
    if not entry.is_symlink():
        return False
    target, here = os.path.realpath(entry.path), os.path.realpath(os.path.dirname(entry.path))
    return os.path.commonpath([target, here]) == target
