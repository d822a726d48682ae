"""Where pytest was started: print the header, gather results, check that none is missing, write report and summary.

Under xdist this is the controller; workers have none of it and print nothing.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.plugin.equal_errors import EqualErrors
from pytest_benchflow.plugin.options import is_asked_for
from pytest_benchflow.plugin.stash import SIGTERM, attribute_errors_to, existing_run, get_session

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchflow.plugin.lost_workers import LostWorkers
    from pytest_benchflow.plugin.reports import Results
    from pytest_benchflow.plugin.session import BenchSession
    from pytest_benchflow.reporting import Judgement, Report


def header(run: BenchSession, n_items: int) -> list[str]:
    """Return one line, and what else is to know: who runs, where and why there, how many, and where the results go."""
    played = ((cell.agent, cell.model) for cell in run.cells())
    agents = ", ".join(dict.fromkeys("/".join(part for part in pair if part) for pair in played))
    what = f"{n_items} rollout" + ("" if n_items == 1 else "s")
    place = run.job.directory if run.has_job else run.settings.jobs_dir / run.job_name
    line = (
        f"benchflow: {what} · agent {agents} · sandbox {run.sandbox_name} ({run.sandbox_reason}) · "
        f"{run.in_flight} at a time{f' ({run.width.reason})' if run.width.reason else ''} · "
        f"results in {run.shown(str(place))}"
    )
    notes = [*run.notes, *_timeout_notes(run.config), *_worker_notes(run)]
    if run.has_job and run.job.is_resumed:
        n_scored = len(run.scored_keys)
        scores = "1 score" if n_scored == 1 else f"{n_scored} scores"
        notes.insert(0, f"continues {run.job.directory.name}, which has {scores}; they are kept")
    return [line, *(f"note: {note}" for note in notes)]


def _worker_notes(run: BenchSession) -> list[str]:
    """Say what so many workers cost, when one process would do."""
    if run.n_workers <= _WORKERS_PER_CORE * len(os.sched_getaffinity(0)):
        return []
    seconds, memory_gb = run.n_workers * _WORKER_SEC, run.n_workers * _WORKER_MB / 1024
    return [
        f"{run.n_workers} workers take about {seconds:.0f} s of CPU time to start and {memory_gb:.1f} GB of memory; "
        f"--bf-concurrency {run.in_flight} without -n runs as many at a time in one process"
    ]


def say_header(run: BenchSession, n_items: int) -> None:
    """Print the header once the job has its directory."""
    reporter = run.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        if run.config.get_terminal_writer().width_of_current_line:  # where xdist has counted its workers
            reporter.write_line("")
        for line in header(run, n_items):
            reporter.write_line(line)


def note_lines(notes: Sequence[str]) -> list[str]:
    """Return the lines of the summary for what is to be known of the rollouts, the first ones in full."""
    lines = [f"note: {note}" for note in notes[:_SHOWN_NOTES]]
    n_more = len(notes) - len(lines)
    return [*lines, f"note: {n_more} more in the result.json of the rollouts"] if n_more else lines


def _timeout_notes(config: pytest.Config) -> list[str]:
    """Say that the limit of pytest-timeout, if there is one, is not for rollouts: it would count their wait too."""
    if not config.pluginmanager.hasplugin("timeout"):
        return []
    sources = (config.getoption("timeout"), os.environ.get("PYTEST_TIMEOUT"), config.getini("timeout"))
    limit = next((float(value) for value in sources if value not in (None, "")), 0.0)
    if limit <= 0:
        return []
    advice = "--bf-agent-timeout and --bf-timeout-multiplier change them"
    return [f"the timeout of {limit:g} s is not for rollouts, which have their tasks' limits; {advice}"]


_SHOWN_NOTES = 10
#: What one xdist worker takes before its first rollout, by benchmarks/README.md; a few of them are no cause for advice.
_WORKER_SEC, _WORKER_MB = 0.6, 40
_WORKERS_PER_CORE = 4
_IN_TASK_FILE = re.compile(r"(?:^|/)task\.(?:toml|md)::")


class Controller:
    """One per pytest run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started = time.time()
        self._results: Results | None = None
        self._expected: list[str] = []
        self._finished: set[str] = set()
        self._lines: list[str] = []
        self._notes: list[str] = []
        self._annotations: list[str] = []
        self._is_incomplete = False
        self._is_interrupted = False
        config.pluginmanager.register(EqualErrors(), "benchflow-equal-errors")
        self._n_excused = 0
        """Failures of rollouts, which gates may decide about."""
        self._lost_workers: LostWorkers | None = None
        if getattr(config.option, "dist", "no") != "no":
            from pytest_benchflow.plugin.lost_workers import LostWorkers

            self._lost_workers = LostWorkers(config, is_of_task_file, self._finished)
            config.pluginmanager.register(self._lost_workers, "benchflow-lost-workers")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Give every worker the same job, and the sources fetched once."""
        workerinput: dict[str, object] = node.workerinput  # type: ignore[attr-defined]
        from pytest_benchflow.plugin.session import job_of

        workerinput["bf_run_id"], workerinput["bf_job_name"] = job_of(self._config)
        if is_asked_for(self._config):
            run = get_session(self._config)
            workerinput["bf_run_id"], workerinput["bf_job_name"] = run.run_id, run.job_name
            workerinput["bf_sources"] = run.sources

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """Learn which items there are; the controller itself never collects."""
        ours = [nodeid for nodeid in ids if is_of_task_file(nodeid)]
        if ours and not self._expected:
            self._expected = ours
            try:
                self._check()
            except pytest.UsageError:
                self._expected = []  # nothing was to run, so nothing is missing
                raise
            run = get_session(self._config)
            run.job.ledger.begin(len(ours), selftest=run.settings.selftest)
            say_header(run, len(ours))
            from pytest_benchflow.plugin.live import watch_run

            watch_run(run)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take results out of reports."""
        if report.failed and is_of_task_file(report.nodeid) and not self._knows(report):
            self._lose(report)
        if hasattr(report, "bf") and is_of_task_file(report.nodeid):
            _name_in_junit(self._config, report, report.bf["task_name"])
        if hasattr(report, "bf") or self._results is not None:
            self._gathered().add(report)
        if report.when == "teardown" or report.failed:
            self._finished.add(report.nodeid)
        self._n_excused += report.failed and is_of_task_file(report.nodeid) and self._knows(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Note at once that the run is interrupted: a second Ctrl-C may come before pytest has done so."""
        try:
            return (yield)
        except KeyboardInterrupt as interrupt:
            self._is_interrupted = True
            if self._lost_workers is None:
                raise
            self._lost_workers.interrupt(terminated=SIGTERM in interrupt.args)
            # pytest reads the source of every frame before it ends the run, and collects garbage ten times.
            gc.freeze()
            raise interrupt.with_traceback(None) from None

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Refuse to end green with results missing, and write the report."""
        if self._config.pluginmanager.has_plugin("benchflow-live"):
            from pytest_benchflow.plugin.live import stop_watching

            stop_watching(self._config)
        if self._is_interrupted:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        self._add_missing(session)
        result = yield
        self._add_unreached(session)
        self._report(session)
        if self._is_incomplete and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        return result

    def _add_missing(self, session: pytest.Session) -> None:
        """Report what no worker did, unless the run was stopped; before anybody writes what came of the run."""
        missing = [nodeid for nodeid in self._expected if nodeid not in self._finished]
        if not missing or self._lost_workers is None or session.exitstatus == pytest.ExitCode.INTERRUPTED:
            return
        lost = self._lost_workers.report_missing(missing)
        if lost:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
            what = "rollout" if len(lost) == 1 else "rollouts"
            self._notes.append(f"{len(lost)} {what} never reported, for example {lost[0]}")
        elif session.exitstatus == pytest.ExitCode.OK and session.testsfailed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        if self._lines or self._notes:
            terminalreporter.section("benchflow")
            for line in (*self._lines, *self._notes):
                terminalreporter.line(line)
        for line in self._annotations:
            terminalreporter.write_line(line)

    def _knows(self, report: pytest.TestReport) -> bool:
        return hasattr(report, "bf") or (self._results is not None and self._results.knows(report.nodeid))

    def _lose(self, report: pytest.TestReport) -> None:
        """Make a result for an item that failed without one, for its worker died."""
        from pytest_benchflow.core.errors import BenchflowError
        from pytest_benchflow.jobs import Cell
        from pytest_benchflow.plugin.reports import no_rollout
        from pytest_benchflow.rollout import ErrorInfo

        run = get_session(self._config)
        file, _, name = report.nodeid.rpartition("::")
        cell = next((cell for cell in run.cells() if _is_of(name, cell.name)), Cell(name, None, 1, name))
        task = self._config.rootpath / file
        error = ErrorInfo.of(BenchflowError(report.longreprtext.partition("\n")[0]), "create")
        result = no_rollout(run, cell, (task.parent.name, task.parent), error=error)
        report.bf = result.model_dump(mode="json")  # type: ignore[attr-defined]

    def _add_unreached(self, session: pytest.Session) -> None:
        """Count the rollouts that ran ahead of pytest when it was stopped: they were paid for."""
        run = existing_run(self._config)
        items = {item.nodeid: item for item in session.items if is_of_task_file(item.nodeid)}
        known: Collection[str] = () if self._results is None else self._results.ids
        unreached = {*(self._expected or items)}.difference(known)
        if run is None or not run.has_job or not unreached:
            return
        from pytest_benchflow.jobs import latest_attempts, read_results

        began = _iso(self._started)
        stored = read_results(run.job.directory).results
        ahead = latest_attempts(each for each in stored if each.key in unreached and each.started_at >= began)
        if ahead:
            quarantined = [nodeid for nodeid, item in items.items() if item.get_closest_marker("bf_quarantine")]
            self._gathered().add_unreached(ahead, quarantined, selftest=run.settings.selftest)

    def _gathered(self) -> Results:
        if self._results is None:
            from pytest_benchflow.plugin.reports import Results

            self._results = Results(started_at=_iso(self._started))
        return self._results

    def _report(self, session: pytest.Session) -> None:
        run = existing_run(self._config)
        if run is None and self._results is None:
            return
        run = get_session(self._config)
        option = self._config.option
        if option.collectonly or run.settings.dry_run or getattr(option, "setupplan", False):
            return
        if self._results is None and not (run.settings.json or run.settings.html or run.is_judged_without_rollouts):
            return
        from pytest_benchflow.reporting import summary_lines

        results = self._gathered()
        job = results.job_directory()
        judgement = self._judge(session, run, results)
        session.exitstatus = judgement.exit_status
        report = results.report(
            self._expected, exit_status=int(session.exitstatus), job_dir=job, finished_at=_iso(time.time())
        ).model_copy(
            update={
                "shard": run.settings.shard,
                "gates": [*judgement.verdicts],
                "baseline": judgement.comparison,
                "saved": judgement.saved,
                "missing": [*judgement.missing],
                "failed_tests": judgement.n_other_failures,
            }
        )
        self._lines = summary_lines(report.summary) if report.summary else []
        self._notes += note_lines(results.notes())
        if job is not None:
            self._notes.append(f"results: {run.shown(job)}")
        run.durations.learn(entry.result for entry in report.rollouts)
        run.durations.save()
        if (
            report.rollouts or session.exitstatus != pytest.ExitCode.USAGE_ERROR
        ):  # one that was refused says nothing new
            self._write_files(run, report)
        if run.settings.update_baseline and run.settings.baseline is not None:
            from pytest_benchflow.plugin.gating import update_baseline

            self._notes.append(update_baseline(run, judgement, report, run.settings.baseline))
        self._notes += judgement.lines()
        self._tell_github(report, advisory=run.settings.report_only)
        self._publish(report)

    def _judge(self, session: pytest.Session, run: BenchSession, results: Results) -> Judgement:
        from pytest_benchflow.plugin.gating import judge_run

        selected = self._expected or [item.nodeid for item in session.items if is_of_task_file(item.nodeid)]
        return judge_run(
            run,
            results.entries(self._expected),
            status=int(session.exitstatus),
            missing=sorted({*selected} - self._finished),
            n_other_failures=max(0, session.testsfailed - self._n_excused),
        )

    def _publish(self, report: Report) -> None:
        from pytest_benchflow.core.errors import UsageError

        try:
            with attribute_errors_to("pytest_bf_summary"):
                self._config.hook.pytest_bf_summary(report=report)
        except UsageError as error:  # the run is over, and what it found must still be shown
            self._is_incomplete = True
            self._notes.append(str(error))

    def _write_files(self, run: BenchSession, report: Report) -> None:
        from pytest_benchflow.reporting import write_atif, write_html, write_markdown, write_report

        results = [entry.result for entry in report.rollouts]
        self._write("report", run.settings.json, run, partial(write_report, report))
        self._write("report", run.settings.html, run, partial(write_html, report))
        self._write("summary", run.settings.markdown, run, partial(write_markdown, report))
        self._write("trajectories", run.settings.atif, run, partial(write_atif, results))

    def _write(self, what: str, path: Path | None, run: BenchSession, write: Callable[[Path], object]) -> None:
        if path is None:
            return
        shown = run.shown(str(path))
        try:
            write(path)
        except OSError as error:
            self._is_incomplete = True
            self._notes.append(f"{what}: {shown} could not be written: {error.strerror}")
        else:
            self._notes.append(f"{what}: {shown}")

    def _tell_github(self, report: Report, *, advisory: bool) -> None:
        """Write what GitHub Actions shows; its log reads annotations out of what is printed."""
        from pytest_benchflow.reporting import add_step_summary, annotation_lines, is_github

        if is_github():
            self._annotations = [*annotation_lines(report, self._config.rootpath, advisory=advisory)]
            with suppress(OSError):
                add_step_summary(report)

    def _check(self) -> None:
        """Say once, where pytest was started, that nothing can run here."""
        import asyncio

        from pytest_benchflow.core.errors import BenchflowError

        run = get_session(self._config)

        async def preflight() -> None:
            try:
                self._check_credentials(run)
                await run.preflight()
            finally:
                await run.resources.aclose()

        try:
            asyncio.run(preflight())
        except BenchflowError as error:
            raise pytest.UsageError(str(error)) from None

    def _check_credentials(self, run: BenchSession) -> None:
        from pytest_benchflow.plugin.preflight import refuse_missing

        names = {nodeid.rpartition("::")[2] for nodeid in self._expected}
        # A task may ask for more trials than the others; its cells differ from theirs in nothing but the number.
        cells = [cell for cell in run.cells() if any(_is_of(name, cell.name) for name in names)]
        refuse_missing(run, cells, self._config.rootpath / self._expected[0].rpartition("::")[0])


def _name_in_junit(config: pytest.Config, report: pytest.TestReport, task: str) -> None:
    """Put the task before the agent in an item's JUnit name, which many readers show without the class name.

    What `record_xml_attribute` does for tests that ask for it; a pytest release that keeps it elsewhere does without.
    """
    try:
        from _pytest.junitxml import xml_key
    except ImportError:
        return
    xml = config.stash.get(xml_key, None)
    if xml is not None:
        xml.node_reporter(report).add_attribute("name", f"{task}/{report.nodeid.rpartition('::')[2]}")


def _is_of(name: str, cell: str) -> bool:
    return name == cell or name.rpartition("/")[0] == cell


def is_of_task_file(nodeid: str) -> bool:
    """Tell whether a node id is that of a collected rollout, not of a test in Python."""
    return _IN_TASK_FILE.search(nodeid) is not None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
