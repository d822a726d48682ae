"""xdist workers that die: what they ran runs again or is taken from disk, and what never ran is an error of its own.

Runs where pytest was started. Nothing public tells which items a worker has; where a release of xdist keeps that
elsewhere, its own way stays: the item that ran is an error, and the others run again.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_benchflow.plugin.distribution import (
    end_workers_by,
    outlive,
    stop_workers,
    wait_for_workers,
    window_scheduler,
)
from pytest_benchflow.plugin.stash import TERMINATED_SEC, existing_run, get_session

if TYPE_CHECKING:
    from pytest_benchflow.jobs import JobEvent
    from pytest_benchflow.rollout import RolloutResult


#: How long workers may take to clean up after Ctrl-C.
_CLEAN_UP_SEC = 14.0


class Scheduler(Protocol):
    """What every scheduler of xdist can do, of what is asked here."""

    def mark_test_pending(self, item: str) -> None:
        """Have an item run again."""


class LostWorkers:
    """Makes up for workers that die."""

    def __init__(self, config: pytest.Config, is_ours: Callable[[str], bool], reported: Collection[str]) -> None:
        self._config = config
        self._is_ours = is_ours
        self._reported = reported
        """The items that have been reported to their end, which whoever made this adds to."""
        self._n_failed = 0
        self._losses: Counter[str] = Counter()
        self._interrupted: set[object] = set()
        self._stopped: list[object] = []
        self._deadline: float | None = None
        """When workers of an interrupted run are to have ended."""
        self._begun: set[str] = set()
        """The items that dead workers ran."""
        self._called: dict[str, pytest.TestReport] = {}
        """The reports of items that have their outcome and not yet their end."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Let the run go on where a worker dies just before it is given something."""
        outlive(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """Take what a dead worker has reported off its list, before xdist hands the list to others."""
        if error == "keyboard-interrupt":
            self._interrupted.add(node)
        elif error:
            items = _Items(self._scheduler, node)
            for nodeid in items.pending():
                if nodeid in self._called:
                    self._end_report(self._called[nodeid])
            items.drop(self._reported)
            _foresee_collections(self._scheduler)
            lost = [nodeid for nodeid in items.pending() if self._is_ours(nodeid)]
            if lost:
                run = get_session(self._config)
                run.job.note_lost_worker()
                self._end_attempts(lost, _name_of(node))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """Let `--dist each` know what a successor collected, which it asks for if that one dies too."""
        scheduler = self._scheduler
        if hasattr(scheduler, "_removed2pending") and getattr(scheduler, "collection_is_completed", False):
            getattr(scheduler, "node2collection", {}).setdefault(node, list(ids))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> object:
        """Keep workers busy, in the order in which rollouts are to start."""
        run = existing_run(config)
        if run is None or config.option.dist != "load":
            return None
        return window_scheduler(config, log, run.width.number, run.ids_in_start_order)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Scheduler) -> None:
        """Run a rollout again that a worker died with, as often as other failures of the harness are tried again."""
        if not self._is_ours(crashitem):
            return
        node = getattr(report, "node", None)
        report.when = "setup"  # where whatever breaks of a rollout is told
        self._losses[crashitem] += 1
        if node not in self._interrupted:
            if self._losses[crashitem] > get_session(self._config).job.retry.max_retries:
                return
            if not _run_again(sched, node, crashitem):
                return
            self._say(f"{crashitem} was lost with worker {_name_of(node)} and runs again")
        # The report says that the item failed; as the setup of one that goes on it counts as nothing at all.
        report.outcome, report.longrepr = "passed", None
        report.bf_lost = True  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Any:
        """Let JUnit forget what a worker told of a rollout before it died."""
        result = yield
        if hasattr(report, "bf_lost"):
            _forget_in_junit(self._config, report)
        if report.when == "call":
            self._called[report.nodeid] = report
        elif report.when == "teardown":
            self._called.pop(report.nodeid, None)
        self._n_failed += report.failed
        if report.failed and self._n_failed == (self._config.getoption("maxfail") or 0):
            self.stop()
        return result

    def stop(self) -> None:
        """Cancel what the workers run."""
        self._stopped = stop_workers(self._config.pluginmanager.getplugin("dsession"))

    def interrupt(self, *, terminated: bool = False) -> None:
        """Cancel what the workers run, who have some time from now on to clean up."""
        self._deadline = time.monotonic() + (TERMINATED_SEC if terminated else _CLEAN_UP_SEC)
        self.stop()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let the workers of an interrupted run clean up before xdist, which kills them, ends them."""
        if session.exitstatus == pytest.ExitCode.INTERRUPTED:
            if self._deadline is None:
                self.interrupt()
            # A second Ctrl-C waits for nobody, and the report is written all the same.
            deadline = 0 if isinstance(sys.exc_info()[1], KeyboardInterrupt) else self._deadline or 0
            try:
                wait_for_workers(self._stopped, deadline)
            except KeyboardInterrupt:
                deadline = 0
            end_workers_by(self._config.pluginmanager.getplugin("dsession"), deadline)

    def report_missing(self, missing: Iterable[str]) -> list[str]:
        """Report what nobody has reported: what its result on disk says, or that there is none.

        Return what is missing without a dead worker having scored it, of which nobody knows why.
        """
        run = get_session(self._config)
        results = {result.key: result for result in run.job.scored()}
        for nodeid in missing:
            why = _DIED_AGAIN if nodeid in self._begun else _NEVER_RAN
            for report in _reports(nodeid, results.get(nodeid), why):
                self._config.hook.pytest_runtest_logreport(report=report)
        return [nodeid for nodeid in missing if nodeid not in results or nodeid not in self._begun]

    @property
    def _scheduler(self) -> object:
        return getattr(self._config.pluginmanager.getplugin("dsession"), "sched", None)

    def _end_report(self, call: pytest.TestReport) -> None:
        """Report the end of an item that has its outcome: all that its worker did not live to do."""
        end = pytest.TestReport(call.nodeid, call.location, {}, "passed", None, "teardown")
        end.user_properties = call.user_properties
        end.node = getattr(call, "node", None)  # type: ignore[attr-defined]
        self._config.hook.pytest_runtest_logreport(report=end)

    def _end_attempts(self, lost: list[str], worker: str) -> None:
        """Tell the job's ledger how the attempts of a dead worker ended, which nobody else can."""
        from pytest_benchflow.jobs import JobEvent, LedgerReader

        job = get_session(self._config).job
        reader = LedgerReader(job.ledger.path)
        running: dict[str, JobEvent] = {}
        begun: set[str] = set()
        for event in reader.news():
            if event.kind == "begin":
                begun.clear()
            elif event.kind in ("start", "phase"):
                running[event.key] = event
                begun.add(event.key)
            else:
                running.pop(event.key, None)
        reader.close()
        self._begun.update(begun.intersection(lost))
        for nodeid in lost:
            if nodeid not in running:
                continue
            name = running[nodeid].rollout
            result = job.result_of(name) if name else None
            if result is not None:
                job.ledger.append(JobEvent.of_result("end", result))
            else:
                now, why = round(time.time(), 3), f"worker {worker} died"
                job.ledger.append(JobEvent(kind="retry", ts=now, key=nodeid, rollout=name, message=why))

    def _say(self, line: str) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"benchflow: {line}")


class _Items:
    """The items that a scheduler has given to one worker and that have not been reported."""

    def __init__(self, scheduler: object, node: object) -> None:
        self._by_scope: dict[str, dict[str, bool]] = getattr(scheduler, "assigned_work", {}).get(node, {})
        self._indices: list[int] = getattr(scheduler, "node2pending", {}).get(node, [])
        collections = getattr(scheduler, "node2collection", {})
        self._collection: list[str] = collections.get(node) or getattr(scheduler, "collection", None) or []

    def pending(self) -> list[str]:
        """Return what is left to report."""
        return [
            *(self._collection[index] for index in self._indices),
            *(nodeid for unit in self._by_scope.values() for nodeid, is_done in unit.items() if not is_done),
        ]

    def drop(self, reported: Collection[str]) -> None:
        """Count items as done whose reports came, although the worker did not live to say so."""
        self._indices[:] = [index for index in self._indices if self._collection[index] not in reported]
        for scope, unit in [*self._by_scope.items()]:
            unit |= {nodeid: True for nodeid in unit if nodeid in reported}
            if all(unit.values()):  # xdist would give it to another worker, which then waited for more for ever
                del self._by_scope[scope]


def _foresee_collections(scheduler: object) -> None:
    """Let schedulers of whole files give work to a worker that still collects: they would lose what they give it."""
    collection: list[str] | None = getattr(scheduler, "collection", None)
    collections: dict[object, list[str]] | None = getattr(scheduler, "registered_collections", None)
    if collection and collections is not None:
        for node in getattr(scheduler, "assigned_work", {}):
            collections.setdefault(node, [*collection])


def _run_again(scheduler: Scheduler, node: object, nodeid: str) -> bool:
    """Give an item of a dead worker to another one; return whether that can be done."""
    try:
        scheduler.mark_test_pending(nodeid)
    except NotImplementedError:
        if hasattr(scheduler, "workqueue"):
            return True  # its unit of work, with all in it that has not been reported, was given away as it is
        return _run_again_by_successor(scheduler, node, nodeid)
    return True


def _run_again_by_successor(scheduler: object, node: object, nodeid: str) -> bool:
    """With `--dist each` the worker that replaces a dead one runs what that had left."""
    left: dict[object, list[int]] | None = getattr(scheduler, "_removed2pending", None)
    collection: list[str] = getattr(scheduler, "node2collection", {}).get(node, [])
    if left is None or nodeid not in collection:
        return False
    left.setdefault(node, []).insert(0, collection.index(nodeid))
    return True


_NEVER_RAN = "never ran: no worker lived to run it"
_DIED_AGAIN = "its worker died, and none lived to run it again"


def _reports(nodeid: str, result: RolloutResult | None, why: str) -> list[pytest.TestReport]:
    """Return the reports of an item that no worker has reported; `why` is for one without a result."""
    from pytest_benchflow.plugin.outcome import judge

    def report(when: str, outcome: str, text: str | None = None) -> pytest.TestReport:
        file, _, name = nodeid.rpartition("::")
        location = file, None, f"{file.rpartition('/')[0]} {name}"
        made = pytest.TestReport(nodeid, location, {}, outcome, text, when)  # type: ignore[arg-type]
        if result is not None and when == "setup":
            made.bf = result.model_dump(mode="json")  # type: ignore[attr-defined]
        return made

    if result is None:
        return [report("setup", "failed", why), report("teardown", "passed")]
    verdict = judge(result)
    outcome = "passed" if verdict.kind == "passed" else "failed"
    return [report("setup", "passed"), report("call", outcome, verdict.text or None), report("teardown", "passed")]


def _forget_in_junit(config: pytest.Config, report: pytest.TestReport) -> None:
    """Remove the entry of a report; a pytest release that keeps it elsewhere has an empty one in its file."""
    try:
        from _pytest.junitxml import xml_key
    except ImportError:
        return
    xml: Any = config.stash.get(xml_key, None)
    if xml is not None:
        entry = xml.node_reporter(report)
        xml.node_reporters = {key: each for key, each in xml.node_reporters.items() if each is not entry}
        xml.node_reporters_ordered = [each for each in xml.node_reporters_ordered if each is not entry]


def _name_of(node: object) -> str:
    return str(getattr(getattr(node, "gateway", None), "id", "of xdist"))
