"""Find tasks among pytest's directories, cheaply for the many directories that hold none."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.garbage import no_collection
from pytest_benchflow.left_results import holds_results
from pytest_benchflow.text import printable

if TYPE_CHECKING:
    from pytest_benchflow.items import TaskFile
    from pytest_benchflow.tasks import TaskError, TaskHead

TASK_FILES = ("task.toml", "task.md")


def collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claim a task or results, so that nothing inside is run on the host, or a folder of tasks; leave all others."""
    if holds_results(str(path)):
        return LeftResults.from_parent(parent, path=path)
    task_files = _task_files_in(str(path))
    if task_files and not _is_sayable(path.name):
        return Misnamed.of(parent, path)
    found = _read(str(path), parent, task_files)
    if found is not None:
        node: TaskDirectory = TaskDirectory.from_parent(parent, path=path)
        node.found = found
        return node
    return TaskFolder.from_parent(parent, path=path) if _holds_tasks(path) else None


def collect_file(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claim a task file that was given as an argument from outside the root directory."""
    if path.name not in TASK_FILES:
        return None
    directory = str(path.parent)
    found = _read(directory, parent, _task_files_in(directory))
    return None if found is None or _task_file(found, directory) != path else _node(parent, path, found)


class TaskDirectory(pytest.Directory):
    """A task: it yields its task file and hides everything else from pytest."""

    found: TaskHead | TaskError

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield the task file alone."""
        yield _node(self, _task_file(self.found, str(self.path)), self.found)


class LeftResults(pytest.Directory):
    """What a job or a rollout left: files that agents wrote."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield nothing."""
        return []


class TaskFolder(pytest.Directory):
    """A folder with tasks in it, where most of the cost of a large benchmark would be pytest's own bookkeeping."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Return what is inside, sorted by name; the items of tasks at once, without a round of hooks for each."""
        with no_collection():
            return list(self._inside())

    def _inside(self) -> Iterator[pytest.Item | pytest.Collector]:
        from pytest_benchflow.ignored import Ignored

        ignored, session, ihook = Ignored(self), self.session, self.ihook
        # pytest learns the fixtures of the folder's own conftest only after this, too late for items made here.
        at_once = not os.path.lexists(self.path / "conftest.py")
        for entry in self._entries():
            path = Path(entry.path)
            is_dir = entry.is_dir()
            task_files = _task_files_in(entry.path) if is_dir else []
            if task_files and not _is_sayable(entry.name):
                yield Misnamed.of(self, path)
                continue
            if not session.isinitpath(path, with_parents=is_dir):
                if ignored(entry, path, task_files):
                    if task_files and ignored.is_by_accident(entry.name):
                        yield PassedOver.from_parent(self, path=path)
                    continue
                if task_files and (task := self._task_in(entry.path, task_files)) is not None:
                    yield from task.collect() if at_once and task.is_plain else [task]
                    continue
            if is_dir and not os.access(path, os.X_OK):
                yield Closed.from_parent(self, path=path)
            elif is_dir and _contains_itself(entry):
                yield BrokenLink.from_parent(self, path=path)
            elif is_dir:
                directory: pytest.Collector | None = ihook.pytest_collect_directory(path=path, parent=self)
                if directory is not None:
                    yield directory
            elif entry.is_file():
                yield from ihook.pytest_collect_file(file_path=path, parent=self)

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            return sorted(_entries(self.path), key=lambda entry: entry.name)
        except OSError as error:
            raise self.CollectError(f"{self.path} cannot be read: {error.strerror}; check its permissions") from None

    def _task_in(self, directory: str, task_files: list[str]) -> TaskFile | None:
        """Return the file node of a task, None if there is none or its directory must be a node for its conftest."""
        if os.path.lexists(f"{directory}/conftest.py"):
            return None
        found = _read(directory, self, task_files)
        return None if found is None else _node(self, _task_file(found, directory), found)


class Closed(pytest.File):
    """A directory that nobody may enter here: pytest would fail on looking for its conftest."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Refuse it."""
        raise self.CollectError(f"{self.path} cannot be read: Permission denied; check its permissions")


class PassedOver(pytest.File):
    """A task with a name that pytest leaves out unless it is told otherwise: build, dist, venv."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Warn of it."""
        from pytest_benchflow.items import warn

        advice = "give the task another name, or set norecursedirs"
        warn(self, f"{self.nodeid}: pytest passes over directories called {self.path.name}; {advice}")
        return []


class Misnamed(pytest.File):
    """A task whose name no terminal, report or other process can take: file systems allow any bytes."""

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path) -> Misnamed:
        """Make a node that has the name in a form that can be said."""
        shown = ascii(str(path).removeprefix(f"{parent.config.rootpath}/"))[1:-1]
        node: Misnamed = cls.from_parent(parent, path=path, name=shown, nodeid=shown)
        return node

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Refuse it."""
        reason = "the name of the task is not UTF-8 or has control characters"
        raise self.CollectError(f"{self.nodeid}: {reason}; give its directory another one")


class BrokenLink(pytest.File):
    """A link to a directory that contains it: following it would never end."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Refuse it."""
        raise self.CollectError(f"{self.path} links to {self.path.resolve()}, which contains it; remove the link")


def _node(parent: pytest.Collector, path: Path, found: TaskHead | TaskError) -> TaskFile:
    from pytest_benchflow.items import TaskFile

    return TaskFile.of(parent, path, found)


def _read(directory: str, node: pytest.Collector, task_files: list[str]) -> TaskHead | TaskError | None:
    """Return what the directory's task file says, or what is wrong with it; None if it is no task."""
    if not task_files:
        return None
    from pytest_benchflow.current import get_run
    from pytest_benchflow.tasks import TaskError

    run = get_run(node.config)
    try:
        return run.index.head(directory, task_files, strict=run.settings.strict)
    except TaskError as error:
        return error


def _task_file(found: TaskHead | TaskError, directory: str) -> Path:
    if not isinstance(found, Exception):
        return Path(directory, found.file.rpartition("/")[2])
    from pytest_benchflow.tasks import find_task_file

    return Path(find_task_file(directory) or f"{directory}/{TASK_FILES[0]}")


def _task_files_in(directory: str) -> list[str]:
    return [name for name in TASK_FILES if os.path.lexists(f"{directory}/{name}")]


def _holds_tasks(path: Path) -> bool:
    if os.path.lexists(path / "__init__.py"):
        return False
    try:
        return any(_task_files_in(entry.path) for entry in _entries(path) if entry.is_dir())
    except OSError:
        return True  # the folder's own node says what is wrong


def _entries(path: Path) -> list[os.DirEntry[str]]:
    with os.scandir(path) as found:
        return [entry for entry in found if _is_reachable(entry)]


def _is_reachable(entry: os.DirEntry[str]) -> bool:
    try:
        entry.is_file()
    except OSError:
        return False
    return True


def _is_sayable(name: str) -> bool:
    if name.isprintable():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return printable(name) == name and not any(mark in name for mark in "\n\t")


def _contains_itself(entry: os.DirEntry[str]) -> bool:
    if not entry.is_symlink():
        return False
    target, here = os.path.realpath(entry.path), os.path.realpath(os.path.dirname(entry.path))
    return os.path.commonpath([target, here]) == target
