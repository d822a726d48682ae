"""A bar for work that somebody at a terminal waits for: agent installs, image builds, clones of sources."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

from pytest_benchflow.core.activity import on_activity
from pytest_benchflow.core.text import duration, one_line
from pytest_benchflow.reporting.footer import Footer

_FRAME_SEC = 0.1
_BAR_COLUMNS = 20


@contextmanager
def work_shown(descriptor: int) -> Iterator[None]:
    """Show below the cursor what this process does as long as the block runs; logs and dumb terminals show nothing."""
    if not os.isatty(descriptor) or os.environ.get("TERM") == "dumb":
        yield
        return
    bars = _Bars(os.dup(descriptor))
    end = on_activity(bars.note)
    try:
        yield
    finally:
        end()
        bars.close()


class _Bars:
    """Draws in a thread while there is work, and is gone the moment there is none."""

    def __init__(self, descriptor: int) -> None:
        self._footer = Footer(descriptor)
        self._work: dict[str, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="benchflow-work-bar", daemon=True)
        self._thread.start()

    def note(self, what: str, begins: bool) -> None:
        """Learn what begins and what has ended."""
        with self._lock:
            if begins:
                self._work.setdefault(what, time.monotonic())
            else:
                self._work.pop(what, None)
            if not self._work:
                self._footer.erase()

    def close(self) -> None:
        """Draw nothing any more."""
        self._ended.set()
        self._thread.join()
        self._footer.close()

    def _run(self) -> None:
        while not self._ended.wait(_FRAME_SEC):
            with self._lock:
                if self._work:
                    self._footer.draw(_lines(self._work, time.monotonic(), self._footer.size.columns - 1))


def _lines(work: dict[str, float], now: float, width: int) -> list[str]:
    from rich.console import Console
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    rows = Table.grid(padding=(0, 1))
    for what, began in work.items():
        # Nobody knows how much is left of it.
        rows.add_row(
            ProgressBar(None, width=_BAR_COLUMNS, animation_time=now), one_line(what, 60), duration(now - began)
        )
    has_colors = not os.environ.get("NO_COLOR")
    console = Console(
        file=StringIO(),
        width=max(2 * _BAR_COLUMNS, width),
        force_terminal=True,
        color_system="standard" if has_colors else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as capture:
        console.print(rows, crop=True)
    return capture.get().splitlines()
