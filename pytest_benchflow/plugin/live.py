"""The live view, where pytest was started: a block on a terminal, a line now and then in a log, nothing with -q.

A thread follows the job's ledger, which the workers of xdist write too. pytest prints in its hooks only: around each of
them the block is erased and drawn again. While a test's output is captured, a thread must not print to stdout, whose
descriptor then leads to the capture: the view has a copy of its own, made before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.reporting import Footer

if TYPE_CHECKING:
    from pytest_benchflow.jobs import Running
    from pytest_benchflow.plugin.session import BenchSession

FRAME_SEC = 0.5
LINE_SEC = 30.0
_JOIN_SEC = 5.0


def watch_run(run: BenchSession) -> None:
    """Show the run from now on, in the way that suits where it prints to; workers and quiet runs show nothing."""
    config = run.config
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or run.is_worker or run.settings.progress == "off" or config.get_verbosity() < 0:
        return
    try:
        descriptor = os.dup(1)
    except OSError:  # started without a stdout
        return
    wants_block = run.settings.progress == "block" or (run.settings.progress == "auto" and _suits_block(config))
    if wants_block and os.isatty(descriptor) and os.environ.get("TERM") != "dumb":
        view: LiveView = BlockView(run.job.directory, descriptor, colors=reporter.hasmarkup)
    else:
        view = LineView(run.job.directory, descriptor, config)
    config.pluginmanager.register(view, "benchflow-live")
    view.start()


def stop_watching(config: pytest.Config) -> None:
    """End the view; idempotent."""
    view = config.pluginmanager.unregister(name="benchflow-live") if config.pluginmanager.has_plugin(_NAME) else None
    if isinstance(view, LiveView):
        view.stop()


_NAME = "benchflow-live"


def _suits_block(config: pytest.Config) -> bool:
    """Return whether nobody but pytest prints: with -s tests do, and CI systems keep every frame in their logs."""
    return config.getoption("capture") != "no" and not os.environ.get("CI")


class LiveView:
    """Follows the ledger of a job in a thread, until it is stopped."""

    period_sec = FRAME_SEC

    def __init__(self, job: Path, descriptor: int) -> None:
        from pytest_benchflow.jobs import Ledger, LedgerReader, Progress

        self._job = job
        self._descriptor = descriptor
        self._reader = LedgerReader(Ledger(job).path)
        self.progress = Progress()
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="benchflow-live", daemon=True)

    def start(self) -> None:
        """Begin to show."""
        self._thread.start()

    def stop(self) -> None:
        """Show nothing any more."""
        self._ended.set()
        self._thread.join(_JOIN_SEC)
        with self._lock:
            self._reader.close()
            self.close()

    def close(self) -> None:
        """Give back what the view holds."""
        os.close(self._descriptor)

    def show(self, now: float) -> None:
        """Show the progress; called by the thread that follows it."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self._ended.wait(self.period_sec):
            with self._lock:
                self.progress.learn(self._reader.news())
                self.show(time.time())


class LineView(LiveView):
    """One line now and then."""

    def __init__(self, job: Path, descriptor: int, config: pytest.Config) -> None:
        super().__init__(job, descriptor)
        self._reporter = config.pluginmanager.getplugin("terminalreporter")
        self._writer = config.get_terminal_writer()
        self._n_reports = 0
        self._n_ended_by_us = -1
        """How many reports there were when a line of pytest's was last ended by one of ours."""
        self.period_sec = LINE_SEC

    def show(self, now: float) -> None:
        """Print a line of its own, also where pytest is in the middle of one."""
        from pytest_benchflow.reporting import log_line

        is_within_line = self._writer.width_of_current_line > 0 and self._n_ended_by_us != self._n_reports
        self._n_ended_by_us = self._n_reports
        self._reporter.currentfspath = None  # so that pytest names the file again in the line that follows
        line = ("\n" if is_within_line else "") + log_line(self.progress, now) + "\n"
        with suppress(OSError):
            os.write(self._descriptor, line.encode("utf-8", "replace"))

    def pytest_runtest_logreport(self) -> None:
        """Learn that pytest has printed something since."""
        self._n_reports += 1


class BlockView(LiveView):
    """The block below what pytest prints."""

    def __init__(self, job: Path, descriptor: int, *, colors: bool) -> None:
        super().__init__(job, descriptor)
        self._footer = Footer(descriptor)
        self._colors = colors
        self._lines: list[str] = []
        self._hidden = 0

    def close(self) -> None:
        """Erase the block."""
        self._footer.close()

    def show(self, now: float) -> None:
        """Draw the block as it is now."""
        from pytest_benchflow.reporting import status_block

        columns, rows = self._footer.size
        self._lines = status_block(
            self.progress, now, width=columns - 1, height=rows, last_call=self._last_call, colors=self._colors
        )
        if not self._hidden:
            self._footer.draw(self._lines)

    def _last_call(self, running: Running) -> str | None:
        from pytest_benchflow.jobs import last_tool_call

        return last_tool_call(self._job, running)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Let others print."""
        self._hide()
        try:
            yield
        finally:
            self._reveal()

    def _hide(self) -> None:
        with self._lock:
            self._hidden += 1
            self._footer.erase()

    def _reveal(self) -> None:
        with self._lock:
            self._hidden -= 1
            if not self._hidden and not self._ended.is_set():
                self._footer.draw(self._lines)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Generator[None, object, object]:
        """Make room for pytest's line."""
        with self._aside():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self) -> Generator[None, object, object]:
        """Make room for pytest's line."""
        with self._aside():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logfinish(self) -> Generator[None, object, object]:
        """Make room for pytest's line."""
        with self._aside():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_exception_interact(self) -> Generator[None, object, object]:
        """Make room for --pdb, which asks its questions here."""
        with self._aside():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True, optionalhook=True)
    def pytest_testnodedown(self) -> Generator[None, object, object]:
        """Make room for what xdist says of a worker that ended."""
        with self._aside():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True, optionalhook=True)
    def pytest_testnodeready(self) -> Generator[None, object, object]:
        """Make room for what xdist says of a worker that began."""
        with self._aside():
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to a debugger."""
        self._hide()

    @pytest.hookimpl(trylast=True)
    def pytest_leave_pdb(self) -> None:
        """Come back after it."""
        self._reveal()
