"""Collect tasks: cheap for the many directories that hold none, and never importing what verifiers or agents wrote."""

from __future__ import annotations

import fnmatch
import gc
import json
import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pytest_benchflow.core.text import printable

if TYPE_CHECKING:
    from pytest_benchflow.configfile import TaskError
    from pytest_benchflow.plugin.items import TaskFile
    from pytest_benchflow.tasks import TaskSummary


@contextmanager
def gc_paused() -> Iterator[None]:
    """Do without the collector while much is made that stays."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


_PYTESTS_OWN = "main"
_PYTESTS_NAMES = {"*.egg", ".*", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}"}
_LISTS = ("collect_ignore", "collect_ignore_glob")


class Ignored:
    """Answers for the entries of one folder as the hook `pytest_ignore_collect` would."""

    def __init__(self, folder: pytest.Directory) -> None:
        self._config = folder.config
        self._ask = folder.ihook.pytest_ignore_collect
        manager = folder.config.pluginmanager
        patterns = [str(pattern) for pattern in self._config.getini("norecursedirs")]
        self._by_default = {*patterns} == _PYTESTS_NAMES
        self._was_told = any(self._config.getoption(name, None) for name in ("ignore", "ignore_glob"))
        conftests = [plugin for plugin in manager.get_plugins() if _is_conftest(plugin)]
        self._must_ask = (
            self._was_told
            or any(os.sep in pattern for pattern in patterns)
            or any(hasattr(conftest, name) for conftest in conftests for name in (*_LISTS, "pytest_ignore_collect"))
        )
        # What is left of pytest's own answer are patterns of names; other plugins are asked as ever.
        self._names = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns) or r"(?!)")
        answering = manager.hook.pytest_ignore_collect.get_hookimpls()
        self._others = [impl for impl in reversed(answering) if impl.plugin_name != _PYTESTS_OWN]
        known = {"collection_path", "config"}
        self._must_ask |= any(impl.hookwrapper or impl.wrapper or set(impl.argnames) - known for impl in self._others)

    def __call__(self, entry: os.DirEntry[str], path: Path, task_files: list[str]) -> bool:
        """Say whether an entry, which holds these task files if it is a directory, is left out."""
        # pytest's rules for `__pycache__` and virtual environments cannot matter to a plain task.
        is_plain = "task.toml" in task_files and not os.path.lexists(f"{entry.path}/pyvenv.cfg")
        if self._must_ask or not is_plain:
            return bool(self._ask(collection_path=path, config=self._config))
        if self._names.match(entry.name) is not None:
            return True
        arguments = {"collection_path": path, "config": self._config}
        answers = (impl.function(*(arguments[name] for name in impl.argnames)) for impl in self._others)
        return bool(next((answer for answer in answers if answer is not None), None))

    def is_by_accident(self, name: str) -> bool:
        """Say whether a directory is left out for its name alone, and nobody but pytest itself ever said so."""
        is_named = not name.startswith(".") and self._names.match(name) is not None
        return is_named and self._by_default and not self._was_told


def _is_conftest(plugin: object) -> bool:
    return os.path.basename(str(getattr(plugin, "__file__", ""))) == "conftest.py"


_MARKS = (("job.json", "run"), ("config.json", "rollout_name"))
"""Files that only a job or a rollout has, each with a key that tells it from other people's files of that name."""


def holds_results(directory: str) -> bool:
    """Tell whether a directory is that of a job or of a rollout."""
    return any(_has_key(f"{directory}/{name}", key) for name, key in _MARKS)


def _has_key(path: str, key: str) -> bool:
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            data: object = json.load(file)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and key in data


@contextmanager
def outside_of_tasks(early_config: pytest.Config) -> Generator[None]:
    """Let arguments inside of tasks and results stand for these while pytest looks for the first conftest files."""
    namespace, here = early_config.known_args_namespace, str(early_config.invocation_params.dir)
    arguments: list[str] = namespace.file_or_dir
    if arguments:
        namespace.file_or_dir = [_whole(os.path.join(here, arg.partition("::")[0])) or arg for arg in arguments]
    elif not early_config.getini("testpaths") and (whole := _whole(here)) is not None:
        namespace.file_or_dir = [whole]
    try:
        yield
    finally:
        namespace.file_or_dir = arguments


def _whole(path: str) -> str | None:
    """Return the file of the outermost task, or the directory of the results, that a path is in; None if in none."""
    directory, whole = os.path.normpath(path), None
    while directory != (above := os.path.dirname(directory)):
        if holds_results(directory):
            whole = directory
        elif any(os.path.lexists(f"{directory}/{name}") for name in TASK_FILES):
            whole = _checked(directory) or whole
        directory = above
    return whole


def _checked(directory: str) -> str | None:
    """Return the task file of a directory, unless it is some other tool's."""
    from pytest_benchflow.configfile import TaskError
    from pytest_benchflow.tasks import TaskIndex, find_task_file

    try:
        is_task = TaskIndex().summary(directory) is not None
    except TaskError:
        is_task = True
    file = find_task_file(directory) if is_task else None
    return None if file is None else str(file)


TASK_FILES = ("task.toml", "task.md")


def collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claim a task or results, so that nothing inside is run on the host, or a folder of tasks; leave all others."""
    if holds_results(str(path)):
        return ResultsDirectory.from_parent(parent, path=path)
    task_files = _task_files_in(str(path))
    if task_files and not is_printable_name(path.name):
        return UnprintableTask.of(parent, path)
    summary = _read(str(path), parent, task_files)
    if summary is not None:
        node: TaskDirectory = TaskDirectory.from_parent(parent, path=path)
        node.found = summary
        return node
    return TaskFolder.from_parent(parent, path=path) if _holds_tasks(path) else None


def collect_file(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claim a task file that was given as an argument from outside the root directory."""
    if path.name not in TASK_FILES:
        return None
    directory = str(path.parent)
    summary = _read(directory, parent, _task_files_in(directory))
    return None if summary is None or _task_file(summary, directory) != path else _node(parent, path, summary)


class Arguments(NamedTuple):
    """The paths that pytest was given; its own list leaves out those inside of others, and a task hides its inside."""

    paths: frozenset[Path]
    with_parents: frozenset[Path]

    @classmethod
    def of(cls, config: pytest.Config) -> Arguments:
        """Return those of a run."""
        if _ARGUMENTS not in config.stash:
            here = str(config.invocation_params.dir)
            words = (str(arg).partition("::")[0] for arg in config.args)
            paths = frozenset(Path(os.path.normpath(os.path.join(here, word))) for word in words)
            config.stash[_ARGUMENTS] = cls(paths, paths.union(*(path.parents for path in paths)))
        return config.stash[_ARGUMENTS]


_ARGUMENTS = pytest.StashKey[Arguments]()


class TaskDirectory(pytest.Directory):
    """A task: it yields its task file and hides everything else from pytest, but tasks inside that somebody names."""

    found: TaskSummary | TaskError

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield the task file, and what leads to tasks inside that are arguments of pytest."""
        yield _node(self, _task_file(self.found, str(self.path)), self.found)
        yield from _named_inside(self)


class InsideOfTask(pytest.File):
    """A directory inside of a task that leads to another task; no `Directory`, whose conftest pytest would load."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield the task that it is, else those below it, and what else arguments of pytest name there."""
        directory = str(self.path)
        found = _read(directory, self, _task_files_in(directory))
        if found is not None:
            yield _node(self, _task_file(found, directory), found)
        elif self.path in Arguments.of(self.config).paths:
            from pytest_benchflow.tasks import find_tasks

            for path in find_tasks(directory):
                yield InsideOfTask.from_parent(self, path=path)
            return
        yield from _named_inside(self)


def _named_inside(node: pytest.Directory | pytest.File) -> Iterator[pytest.Collector]:
    """Yield the directories of a task that arguments of pytest name, or that lead to those."""
    for entry in sorted(_entries(node.path), key=lambda entry: entry.name):
        path = Path(entry.path)
        if entry.is_dir() and path in Arguments.of(node.config).with_parents and _leads_to_task(node, path):
            yield InsideOfTask.from_parent(node, path=path)


def _leads_to_task(node: pytest.Directory | pytest.File, path: Path) -> bool:
    if path not in Arguments.of(node.config).paths:
        return True
    from pytest_benchflow.tasks import find_tasks

    return next(find_tasks(path), None) is not None


class ResultsDirectory(pytest.Directory):
    """What a job or a rollout left: files that agents wrote."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield nothing."""
        return []


class TaskFolder(pytest.Directory):
    """A folder with tasks in it, where most of the cost of a large benchmark would be pytest's own bookkeeping."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Return what is inside, sorted by name; the items of tasks at once, without a round of hooks for each."""
        with gc_paused():
            return list(self._inside())

    def _inside(self) -> Iterator[pytest.Item | pytest.Collector]:

        ignored, session, ihook = Ignored(self), self.session, self.ihook
        named = Arguments.of(self.config).with_parents
        # pytest learns the fixtures of the folder's own conftest only after this, too late for items made here.
        at_once = not os.path.lexists(self.path / "conftest.py")
        for entry in self._entries():
            path = Path(entry.path)
            is_dir = entry.is_dir()
            task_files = _task_files_in(entry.path) if is_dir else []
            if task_files and not is_printable_name(entry.name):
                yield UnprintableTask.of(self, path)
                continue
            if not session.isinitpath(path, with_parents=is_dir) and path not in named:
                if ignored(entry, path, task_files):
                    if task_files and ignored.is_by_accident(entry.name):
                        yield SkippedByName.from_parent(self, path=path)
                    continue
                if task_files and (task := self._task_in(entry.path, task_files)) is not None:
                    yield from task.collect() if at_once and task.is_plain else [task]
                    continue
            if is_dir and not os.access(path, os.X_OK):
                yield UnreadableDirectory.from_parent(self, path=path)
            elif is_dir and _is_loop(entry):
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
        summary = _read(directory, self, task_files)
        return None if summary is None else _node(self, _task_file(summary, directory), summary)


class UnreadableDirectory(pytest.File):
    """A directory that nobody may enter here: pytest would fail on looking for its conftest."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Refuse it."""
        raise self.CollectError(f"{self.path} cannot be read: Permission denied; check its permissions")


class SkippedByName(pytest.File):
    """A task with a name that pytest leaves out unless it is told otherwise: build, dist, venv."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Warn of it."""
        from pytest_benchflow.configfile import Problem
        from pytest_benchflow.plugin.stash import get_session

        file = f"{self.path}/{_task_files_in(str(self.path))[0]}"
        reason = f"pytest passes over directories called {self.path.name}"
        problem = Problem(file, 1, None, reason, "give the task another name, or set norecursedirs", "warning")
        get_session(self.config).task_warnings.add(self, problem)
        return []


class UnprintableTask(pytest.File):
    """A task whose name no terminal, report or other process can take: file systems allow any bytes."""

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path) -> UnprintableTask:
        """Make a node that has the name in a form that can be said."""
        shown = ascii(str(path).removeprefix(f"{parent.config.rootpath}/"))[1:-1]
        node: UnprintableTask = cls.from_parent(parent, path=path, name=shown, nodeid=shown)
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


def _node(parent: pytest.Collector, path: Path, found: TaskSummary | TaskError) -> TaskFile:
    from pytest_benchflow.plugin.items import TaskFile

    return TaskFile.of(parent, path, found)


def _read(directory: str, node: pytest.Collector, task_files: list[str]) -> TaskSummary | TaskError | None:
    """Return what the directory's task file says, or what is wrong with it; None if it is not a task."""
    if not task_files:
        return None
    from pytest_benchflow.configfile import TaskError
    from pytest_benchflow.plugin.stash import get_session

    run = get_session(node.config)
    try:
        return run.index.summary(directory, task_files, strict=run.settings.strict)
    except TaskError as error:
        return error


def _task_file(found: TaskSummary | TaskError, directory: str) -> Path:
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


def is_printable_name(name: str) -> bool:
    if name.isprintable():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return printable(name) == name and not any(mark in name for mark in "\n\t")


def _is_loop(entry: os.DirEntry[str]) -> bool:
    if not entry.is_symlink():
        return False
    from pytest_benchflow.tasks import is_loop

    return is_loop(entry.path)
