"""Rollout items: ordinary pytest functions under a task file, so fixtures, marks and other plugins see plain tests.

Nothing public tells which fixtures an item will use, or who defines them: that one look behind pytest's public API is
read only, and does without where a pytest release keeps it elsewhere.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import pluggy
import pytest

from pytest_benchflow.core.text import distinct_names
from pytest_benchflow.plugin.outcome import judge
from pytest_benchflow.plugin.resolve import modified_task, trials_of
from pytest_benchflow.plugin.stash import as_pytest_outcome, expect_type, get_session

if TYPE_CHECKING:
    from pytest_benchflow.configfile import TaskError
    from pytest_benchflow.jobs import Cell
    from pytest_benchflow.rollout import RolloutResult
    from pytest_benchflow.tasks import RunHints, TaskSummary


Definitions = Sequence[pytest.FixtureDef[object]]


class FixtureInfo(Protocol):
    """What pytest resolved for one item."""

    @property
    def names_closure(self) -> Sequence[str]:
        """Every fixture the item uses, also indirectly."""

    @property
    def name2fixturedefs(self) -> Mapping[str, Definitions]:
        """The definitions of each, overridden ones first."""


def fixture_info(item: pytest.Item) -> FixtureInfo | None:
    """Return what pytest resolved for an item, None if it cannot be had."""
    return getattr(item, "_fixtureinfo", None)


def definitions_of(name: str, item: pytest.Item) -> Definitions | None:
    """Return the definitions of a fixture that an item would see, None if they cannot be had."""
    manager: Any = getattr(item.session, "_fixturemanager", None)
    try:
        definitions: Definitions | None = manager.getfixturedefs(name, item)
    except (AttributeError, TypeError):
        return None
    return definitions


_FIXTURES = pytest.StashKey[dict[Callable[..., None], FixtureInfo | None]]()
_NO_MODULE = ModuleType("benchflow_task")


def reward_reaches_threshold(bf_result: RolloutResult) -> None:
    """Pass when the agent earned the reward that was asked for."""
    _assert(bf_result)


def reward_stays_below_threshold(bf_result: RolloutResult) -> None:
    """Pass when the agent did not earn the reward: a self-test of the verifier."""
    _assert(bf_result, must_fail=True)


for _template in (reward_reaches_threshold, reward_stays_below_threshold):
    # pytest asks for the signature of every item; this spares working it out ten thousand times.
    _template.__signature__ = inspect.signature(_template)  # type: ignore[attr-defined]


def _assert(result: RolloutResult, *, must_fail: bool = False) -> None:
    __tracebackhide__ = True
    from pytest_benchflow.rollout import RolloutResult

    with as_pytest_outcome():
        expect_type(result, RolloutResult, "bf_result", "is")
    verdict = judge(result, must_fail=must_fail)
    if verdict.kind == "failed":
        pytest.fail(verdict.text, pytrace=False)


class RolloutItem(pytest.Function):
    """One rollout of a task."""

    summary: TaskSummary
    cell: Cell
    namesake: str | None = None
    """What the task is called where another task of the run has the same name."""

    @property
    def ihook(self) -> pluggy.HookRelay:
        """Call the hooks that the task file would."""
        assert self.parent is not None
        return self.parent.ihook

    @cached_property
    def location(self) -> tuple[str, int | None, str]:
        """Return what pytest would: the path below the root directory, which it works out anew for every file."""
        path, line, name = self.reportinfo()
        below = _below(Path(path), self.config.rootpath)
        return super().location if below is None else (below, line, name)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Point at the task file instead of this module."""
        return self.path, 0, f"{self.namesake or self.summary.name} {self.name}"


def name_apart(items: Iterable[pytest.Item]) -> None:
    """Give tasks of one name a longer one, so that every heading says which it is."""
    rollouts = [item for item in items if isinstance(item, RolloutItem)]
    files = {(item.summary.name, item.summary.file) for item in rollouts}
    if len({name for name, _ in files}) == len(files):
        return
    tasks = {(item.summary.name, _directory(item)) for item in rollouts}
    if len({name for name, _ in tasks}) == len(tasks):
        return
    names = distinct_names(tasks)
    for item in rollouts:
        name = names[item.summary.name, _directory(item)]
        item.namesake = name if name != item.summary.name else None


def _directory(item: RolloutItem) -> str:
    """Return the directory of its task in ids; the rest of an id may have slashes too."""
    assert item.parent is not None
    return item.parent.nodeid.rpartition("/")[0]


class TaskFile(pytest.Module):
    """The task file as a collector of rollout items."""

    _found: TaskSummary | TaskError

    @property
    def ihook(self) -> pluggy.HookRelay:
        """Call the hooks that the folder above would: pytest has not visited the task's own directory for conftests."""
        assert self.parent is not None
        return self.parent.ihook

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path, found: TaskSummary | TaskError) -> TaskFile:
        """Make the node of a task whose file has been read."""
        name = _below(path, parent.path) or path.name
        # The id pytest would find too, at a price; but outside the root directory it would give one to two tasks.
        nodeid = _below(path, parent.config.rootpath) or os.path.relpath(path, parent.config.rootpath)
        node: TaskFile = cls.from_parent(parent, path=path, name=name, nodeid=nodeid)
        node.obj = _NO_MODULE
        node._found = found
        return node

    @property
    def is_plain(self) -> bool:
        """Whether nothing can go wrong in collecting it; what does must be an error of this task and no other."""
        return not isinstance(self._found, Exception) and not self._found.warnings and not self._has_hooks

    @property
    def _has_hooks(self) -> bool:
        return bool(self.config.hook.pytest_bf_modify_task.get_hookimpls())

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Make one item per cell of the matrix; a broken task is an error that lists all its problems."""
        if isinstance(self._found, Exception):
            raise self.CollectError(str(self._found))
        summary = self._modified(self._found)
        run = get_session(self.config)
        for problem in summary.warnings:
            run.task_warnings.add(self, problem)
        trials = trials_of(run, self.nodeid.rpartition("/")[0], summary.name, summary.run)
        marks = _task_marks(summary.tags, summary.run, self.config.pluginmanager.hasplugin("timeout"))
        return [self._item(summary, cell, marks, run.sandbox_name, run.settings.selftest) for cell in run.cells(trials)]

    def _modified(self, summary: TaskSummary) -> TaskSummary:
        """Let a conftest change the task; only then is the whole of it read here."""
        if not self._has_hooks:
            return summary
        from pytest_benchflow.core.errors import BenchflowError
        from pytest_benchflow.tasks import load_task

        try:
            task = modified_task(self, load_task(self.path))
        except BenchflowError as error:
            raise self.CollectError(str(error)) from None
        return replace(
            summary, name=task.name, difficulty=task.difficulty, category=task.category, tags=task.tags, run=task.run
        )

    def _item(
        self, summary: TaskSummary, cell: Cell, marks: tuple[pytest.MarkDecorator, ...], sandbox: str, selftest: bool
    ) -> RolloutItem:
        must_fail = selftest and cell.agent == "nop"
        template = reward_stays_below_threshold if must_fail else reward_reaches_threshold
        item: RolloutItem = RolloutItem.from_parent(
            self, name=cell.name, callobj=template, fixtureinfo=_known_fixtures(self, template)
        )
        _remember_fixtures(self, template, item)
        item.summary = summary
        item.cell = cell
        item.add_marker(_cell_mark(cell.agent, cell.model, cell.scene, sandbox, summary.difficulty, summary.category))
        for mark in marks:
            item.add_marker(mark)
        return item


def _below(path: Path, folder: Path) -> str | None:
    prefix = f"{folder}/"
    return str(path)[len(prefix) :] if str(path).startswith(prefix) else None


def _known_fixtures(node: TaskFile, template: Callable[..., None]) -> object | None:
    """Return what an item beside this one found out about its fixtures: below one folder all see the same ones."""
    assert node.parent is not None
    known = node.parent.stash.get(_FIXTURES, {}).get(template)
    # A copy of its own, because other plugins add to an item's list of fixtures.
    return replace(known, names_closure=[*known.names_closure]) if is_dataclass(known) else None


def _remember_fixtures(node: TaskFile, template: Callable[..., None], item: RolloutItem) -> None:
    assert node.parent is not None
    node.parent.stash.setdefault(_FIXTURES, {}).setdefault(template, fixture_info(item))


@lru_cache(maxsize=1024)
def _cell_mark(
    agent: str, model: str | None, scene: str | None, sandbox: str, difficulty: str | None, category: str | None
) -> pytest.MarkDecorator:
    facts = {
        "agent": agent,
        "model": model,
        "scene": scene,
        "sandbox": sandbox,
        "difficulty": difficulty,
        "category": category,
    }
    return pytest.mark.bf(**{key: value for key, value in facts.items() if value is not None})


@lru_cache(maxsize=1024)
def _task_marks(tags: tuple[str, ...], run: RunHints, has_timeout: bool) -> tuple[pytest.MarkDecorator, ...]:
    marks = [pytest.mark.bf_tag(name=tag) for tag in tags]
    if has_timeout:
        # pytest-timeout's clock would count the wait for a free place; the engine bounds every rollout itself.
        marks.append(pytest.mark.timeout(0))
    if run.quarantine:
        marks.append(pytest.mark.bf_quarantine)
    if run.skip is not None:
        marks.append(pytest.mark.skip(reason=run.skip))
    if run.xfail is not None:
        marks.append(pytest.mark.xfail(reason=run.xfail))
    return tuple(marks)
