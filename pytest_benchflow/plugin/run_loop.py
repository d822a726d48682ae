"""Rollouts beside pytest's run loop: started in order behind a cap, each awaited by its own item."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.core.errors import BenchflowError
from pytest_benchflow.plugin.collection import gc_paused
from pytest_benchflow.plugin.controller import say_header
from pytest_benchflow.plugin.gating import plan_run
from pytest_benchflow.plugin.items import RolloutItem, definitions_of, fixture_info
from pytest_benchflow.plugin.live import stop_watching, watch_run
from pytest_benchflow.plugin.outcome import judge
from pytest_benchflow.plugin.session import BenchSession, EngineProxy
from pytest_benchflow.plugin.stash import RESULT, SIGTERM, TERMINATED_SEC, as_pytest_outcome

if TYPE_CHECKING:
    from pytest_benchflow.rollout import Rollout, RolloutResult


CHAIN = ("bf_task", "bf_config", "bf_sandbox", "bf_agent", "bf_session", "bf_rollout", "bf_result", "bf_run")
"""The fixtures a conftest may override."""
_DECIDED_WHEN_REACHED = ("skip", "skipif", "xfail")


def can_start_early(item: RolloutItem) -> bool:
    """Tell whether an item's rollout can start as soon as a place is free; if in doubt, it cannot."""
    if any(item.get_closest_marker(name) is not None for name in _DECIDED_WHEN_REACHED):
        return False
    return not overridden(item) and not _has_users_function_fixture(item)


def overridden(item: pytest.Item) -> frozenset[str]:
    """Return the names of the chain that a conftest, module or class replaces for this item."""
    return frozenset(name for name in CHAIN if _is_overridden(name, item))


def _is_overridden(name: str, item: pytest.Item) -> bool:
    definitions = definitions_of(name, item)
    return definitions is None or len(definitions) > 1


def _has_users_function_fixture(item: pytest.Item) -> bool:
    info = fixture_info(item)
    return info is None or any(
        definition.scope == "function" and _is_from_conftest(definition)
        for definitions in info.name2fixturedefs.values()
        for definition in definitions
    )


def _is_from_conftest(definition: pytest.FixtureDef[object]) -> bool:
    code = getattr(definition.func, "__code__", None)
    return code is not None and os.path.basename(code.co_filename) == "conftest.py"


#: How many times as many rollouts as are in flight may wait for something of their own while others pass them.
_MOST_HELD_UP = 2
_LATER_LINKS = frozenset({"bf_sandbox", "bf_agent", "bf_session", "bf_rollout"})


class Ahead:
    """The rollouts of items that pytest has not reached yet.

    Each is resolved here, on pytest's own thread: hooks are called and task files read where users expect it, a few
    ahead of the free places. Whenever a rollout ends, whoever waits on this thread resolves the next ones.
    """

    def __init__(self, run: BenchSession, items: Sequence[RolloutItem]) -> None:
        self._run = run
        # What has a score is read when pytest comes to it: nothing has to start for it.
        items = [item for item in items if item.nodeid not in run.scored_keys]
        in_start_order = run.in_start_order(items)
        self._items = iter(in_start_order)
        self._coming = set() if in_start_order is items else {item.nodeid for item in items}
        """Items that are not queued yet, if pytest may reach them before their turn to start."""
        self._is_in_order = in_start_order is items
        self._futures: dict[str, Future[RolloutResult]] = {}
        self._finished_at_once: deque[str] = deque()
        """Items whose result was there when they were queued; each counts as unfinished until pytest reaches it."""
        self._n_unfinished = 0
        self._ended: SimpleQueue[None] = SimpleQueue()

    def fill(self) -> None:
        """Resolve and queue rollouts, until as many wait as are in flight."""
        engine = self._run.engine
        while self._n_unfinished < 2 * engine.width + min(engine.n_held_up, _MOST_HELD_UP * engine.width):
            item = next(self._items, None)
            if item is None:
                return
            self._coming.discard(item.nodeid)
            if not can_start_early(item):
                continue
            self._futures[item.nodeid] = future = self._submit(item)
            if future.done() and not self._is_in_order:
                continue  # pytest may reach it last of all, so nothing is to wait for it
            self._n_unfinished += 1
            if future.done():
                self._finished_at_once.append(item.nodeid)
            else:
                future.add_done_callback(lambda _: self._ended.put(None))

    def start(self, item: pytest.Item) -> Future[RolloutResult] | None:
        """Queue the rollout of an item, whatever else is queued; None if it is to start when pytest reaches it."""
        if not isinstance(item, RolloutItem) or not can_start_early(item):
            return None
        self._futures[item.nodeid] = future = self._submit(item)
        return future

    def result_of(self, nodeid: str) -> RolloutResult | None:
        """Wait for a rollout that was queued; None if it was not."""
        while nodeid in self._coming:
            self._take_ended()
        future = self._futures.pop(nodeid, None)
        if future is None:
            return None
        self._release(nodeid)
        while not future.done() or not self._ended.empty():
            self._take_ended()
        return future.result()

    def _take_ended(self) -> None:
        """Wait until a rollout ends, and queue the next."""
        self._ended.get()
        self._n_unfinished -= 1
        self.fill()

    def _release(self, nodeid: str) -> None:
        """Count an item that needed no rollout as ended, and those before it, which pytest has passed by."""
        if nodeid in self._finished_at_once:
            while self._finished_at_once.popleft() != nodeid:
                self._ended.put(None)
            self._ended.put(None)

    def _submit(self, item: RolloutItem) -> Future[RolloutResult]:
        try:
            task = self._run.task_of(item)
            return self._run.submit(self._run.config_of(item, task), task)
        except Exception as error:  # it is this item's own, and told when pytest reaches it
            failed: Future[RolloutResult] = Future()
            failed.set_exception(error)
            return failed


@contextmanager
def rollouts_in_flight(session: pytest.Session, run: BenchSession) -> Iterator[None]:
    """Keep the engine busy with the selected items while pytest goes through them, and stop it at the end."""
    items = [item for item in session.items if isinstance(item, RolloutItem)]
    within_sec: float | None = None
    if items:
        run.config.pluginmanager.register(_Release(), "benchflow-release")
    try:
        with _sigterm_interrupts():
            plan_run(run, items)
            # A worker learns item by item what it is to run, and the controller has checked that it can.
            if items and _will_run(session) and not run.is_worker:
                with gc_paused():
                    _check(run, items)
                    # Almost all of the package has been imported by now, and stays.
                    gc.freeze()
                run.job.ledger.begin(len(items), selftest=run.settings.selftest)
                say_header(run, len(items))
                watch_run(run)
                if run.scored_keys:
                    from pytest_benchflow.plugin.reused_scores import report_at_once

                    report_at_once(run, session)
                run.ahead = Ahead(run, items)
                run.ahead.fill()
            elif items and run.is_worker:
                from pytest_benchflow.plugin.worker_queue import take_over

                run.ahead = Ahead(run, [])
                take_over(session, run, run.ahead)
            yield
    except KeyboardInterrupt as interrupt:
        within_sec = TERMINATED_SEC if SIGTERM in interrupt.args else None
        raise
    finally:
        stop_watching(run.config)
        run.close(within_sec=within_sec)
        if items:
            _settle_memory()


class _Release:
    """Lets go of the result of each item, once no rerun can ask for it: pytest keeps its items to the end."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Let go of it after the last report."""
        try:
            return (yield)
        finally:
            if RESULT in item.stash:
                del item.stash[RESULT]


def result_for(run: BenchSession, request: pytest.FixtureRequest) -> RolloutResult:
    """Wait for the node's rollout, or run it now, and keep its result with the node."""
    node = request.node
    try:
        with as_pytest_outcome():
            result = run.ahead.result_of(node.nodeid) if run.ahead is not None else None
        if result is None:
            result = _run_now(run, request)
    except (CancelledError, asyncio.CancelledError):
        result = _cancelled(run, request)
    node.stash[RESULT] = result
    return result


def _cancelled(run: BenchSession, request: pytest.FixtureRequest) -> RolloutResult:
    """Return what a rollout has left that was cancelled because the run stops."""
    result = run.job.last_result(request.getfixturevalue("bf_config"), request.getfixturevalue("bf_task"))
    if result is None:
        pytest.skip("the rollout was cancelled before it began")
    return result


def _run_now(run: BenchSession, request: pytest.FixtureRequest) -> RolloutResult:
    later = overridden(request.node) & _LATER_LINKS
    if not later:
        config, task = request.getfixturevalue("bf_config"), request.getfixturevalue("bf_task")
        return run.run(config, task, rerun_of=request.node.stash.get(RESULT, None))
    if "bf_session" in later:
        request.getfixturevalue("bf_session")  # the session it leaves open is the one that the agent works in
    rollout: Rollout = EngineProxy.unwrap(request.getfixturevalue("bf_rollout"))
    return run.wait(rollout.finish())


def _settle_memory() -> None:
    """Take what stays to the end out of the garbage collector's sight: pytest calls it ten times before it goes."""
    gc.collect()
    gc.freeze()


def _will_run(session: pytest.Session) -> bool:
    option = session.config.option
    stopped = session.testsfailed and not option.continue_on_collection_errors
    return not (stopped or option.collectonly or getattr(option, "setupplan", False))


def _check(run: BenchSession, items: list[RolloutItem]) -> None:
    """Say once, not once per item, that nothing can run here."""
    from pytest_benchflow.plugin.preflight import refuse_missing

    try:
        refuse_missing(run, {item.cell.name: item.cell for item in items}.values(), Path(items[0].summary.file))
        run.engine.call(run.preflight())
    except BenchflowError as error:
        raise pytest.UsageError(str(error)) from None


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM end the run as Ctrl-C does: pytest would otherwise skip all clean-up."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(SIGTERM)


def require_reward(result: RolloutResult) -> None:
    """Skip or error a rollout that gave no reward; the call phase is for rewards only."""
    verdict = judge(result)
    if verdict.kind == "skipped":
        pytest.skip(verdict.text)
    if verdict.kind == "error":
        pytest.fail(verdict.text, pytrace=False)
