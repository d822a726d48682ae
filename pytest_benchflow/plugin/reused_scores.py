"""Items whose score an earlier run of the job has: reported at once, where nobody could tell it from running them.

pytest sets up, calls and tears down every item, with a dozen plugins around each; for a rollout that has its score
there is nothing to do in any of it. The reports go the ordinary way. Whatever might notice a fixture or a phase that
did not happen (fixtures, hooks and marks of the user's, a debugger) makes the item run as every other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_benchflow.plugin.items import RolloutItem, fixture_info
from pytest_benchflow.plugin.run_loop import can_start_early
from pytest_benchflow.plugin.stash import RESULT

if TYPE_CHECKING:
    from pytest_benchflow.plugin.session import BenchSession
    from pytest_benchflow.rollout import RolloutResult
    from pytest_benchflow.tasks import RunHints

#: Where hooks and fixtures come from that do nothing for an item which only has a score.
_HARMLESS = frozenset(
    {
        "_hypothesis_pytestplugin",
        "_pytest",
        "anyio",
        "pytest_asyncio",
        "pytest_benchflow",
        "pytest_rerunfailures",
        "pytest_timeout",
        "xdist",
    }
)
_LEFT_OUT = (
    "pytest_fixture_post_finalizer",
    "pytest_fixture_setup",
    "pytest_pyfunc_call",
    "pytest_runtest_call",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
)
_OURS = ("pytest_bf_modify_config", "pytest_bf_modify_task", "pytest_bf_rollout_result")
_DECIDING_MARKS = frozenset(
    {"bf_threshold", "bf_timeout", "bf_trials", "flaky", "skip", "skipif", "usefixtures", "xfail"}
)
_WATCHING_OPTIONS = ("reruns", "setuponly", "setupplan", "setupshow", "trace", "usepdb")


def report_at_once(run: BenchSession, session: pytest.Session) -> None:
    """Let items that have a score be reported without running them, if that is what nobody would notice."""
    config = session.config
    if run.is_worker or not run.scored_keys or run.given.overrides:
        return
    hooks = [impl for name in _LEFT_OUT for impl in getattr(config.hook, name).get_hookimpls()]
    is_heard = not all(map(_is_harmless, (impl.function for impl in hooks)))
    is_heard |= any(getattr(config.hook, name).get_hookimpls() for name in _OURS)
    if not is_heard and not any(_is_set(config, name) for name in _WATCHING_OPTIONS):
        config.pluginmanager.register(ReusedScores(run), "benchflow-reused-scores")


def _is_set(config: pytest.Config, name: str) -> bool:
    try:
        return bool(config.getoption(name, None) or config.getini(name))
    except ValueError:  # an option without a key in the ini file
        return False


def _is_harmless(function: object) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] in _HARMLESS


class ReusedScores:
    """Takes the place of pytest's own protocol for these items."""

    def __init__(self, run: BenchSession) -> None:
        self._run = run
        self._left: object = None
        """The innermost collector that the last item which ran has left set up, for the one after it."""
        self._plain_folders: dict[object, bool] = {}
        self._fingerprints: dict[tuple[str, str | None, str | None, RunHints], str | None] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Report an item that has a score, and leave others to pytest."""
        result = self._score_of(item) if self._keeps_setup(nextitem) else None
        if result is None:
            self._left = _innermost_shared(item, nextitem)
            return None
        assert isinstance(item, RolloutItem)
        _report(item, result)
        return True

    def _keeps_setup(self, nextitem: pytest.Item | None) -> bool:
        """Return whether what is set up can stay as it is: pytest ends it after the last item that has use for it."""
        return self._left is None or (nextitem is not None and self._left in nextitem.listchain())

    def _score_of(self, item: pytest.Item) -> RolloutResult | None:
        if not isinstance(item, RolloutItem) or item.nodeid not in self._run.scored_keys or not self._is_plain(item):
            return None
        settings = self._fingerprint_for(item)
        result = settings and self._run.job.unchanged(item.nodeid, settings, item.summary.file)
        if not result:
            return None
        self._run.note_reused(item.nodeid)
        return result

    def _is_plain(self, item: RolloutItem) -> bool:
        """Return whether an item has nothing but what every rollout has; below one folder all see the same fixtures."""
        if not _DECIDING_MARKS.isdisjoint(mark.name for mark in item.iter_markers()):
            return False
        assert item.parent is not None
        key = item.parent.parent, *item.fixturenames
        if key not in self._plain_folders:
            self._plain_folders[key] = can_start_early(item) and _has_harmless_fixtures(item)
        return self._plain_folders[key]

    def _fingerprint_for(self, item: RolloutItem) -> str | None:
        """Return the fingerprint of an item's configuration: the same for all that differ in their task only."""
        cell = item.cell
        key = cell.agent, cell.model, cell.scene, item.summary.run
        if key not in self._fingerprints:
            from pytest_benchflow.core.errors import BenchflowError

            try:
                config = self._run.config_of(item, self._run.task_of(item))
                self._fingerprints[key] = self._run.job.scores.fingerprint(config)
            except BenchflowError:  # it is told when the item runs
                return None
        return self._fingerprints[key]


def _has_harmless_fixtures(item: RolloutItem) -> bool:
    info = fixture_info(item)
    return info is not None and all(
        _is_harmless(definition.func) for definitions in info.name2fixturedefs.values() for definition in definitions
    )


def _innermost_shared(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """Return the innermost collector of an item that the next one is in too: what pytest leaves set up between them."""
    chain = [] if nextitem is None else nextitem.listchain()
    shared = [mine for mine, other in zip(item.listchain(), chain, strict=False) if mine is other]
    return shared[-1] if shared else None


def _report(item: RolloutItem, result: RolloutResult) -> None:
    """Say of an item what pytest would, with the same reports."""
    item.stash[RESULT] = result
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    phases: tuple[tuple[Literal["setup", "call", "teardown"], Callable[[], None]], ...] = (
        ("setup", _nothing),
        ("call", partial(item.obj, bf_result=result)),
        ("teardown", _nothing),
    )
    for when, do in phases:
        call = pytest.CallInfo.from_call(do, when)
        report: pytest.TestReport = hook.pytest_runtest_makereport(item=item, call=call)
        hook.pytest_runtest_logreport(report=report)
        if call.excinfo is not None and not hasattr(report, "wasxfail"):
            hook.pytest_exception_interact(node=item, call=call, report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _nothing() -> None:
    pass
