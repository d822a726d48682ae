"""`bf watch`: the live view of a job that runs in another terminal, or on another machine with the same disk.

The job's ledger is looked at twice a second: the clock of the view moves anyway, and network disks tell nobody when a
file grows on another machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.text import did_you_mean

if TYPE_CHECKING:
    from pytest_benchflow.jobs import LedgerReader, Progress

_FRAME_SEC = 0.5
_LINE_SEC = 10.0


def add_watch(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command `bf watch`."""
    view = commands.add_parser("watch", help="follow a job that runs in another terminal or on a shared disk")
    view.add_argument("job", nargs="?", metavar="JOB", help="its name or directory (default: the newest)")
    view.add_argument("--jobs-dir", type=Path, default=Path("jobs"), metavar="DIR", help="default: %(default)s")
    view.add_argument("--once", action="store_true", help="print one line and end")
    view.set_defaults(action=lambda options: watch(options.job, jobs_dir=options.jobs_dir, once=options.once))


def watch(job: str | None, *, jobs_dir: Path, once: bool) -> int:
    """Show a job until its run ends: 0 if it came to its end, 1 if it was killed."""
    from pytest_benchflow.jobs import LEDGER, LedgerReader, Progress

    directory = _find(job, jobs_dir)
    reader, progress = LedgerReader(directory / LEDGER), Progress()
    try:
        return _once(reader, progress) if once else _follow(directory, reader, progress)
    except KeyboardInterrupt:
        return 130
    finally:
        reader.close()


def _find(job: str | None, jobs_dir: Path) -> Path:
    from pytest_benchflow.jobs import LEDGER, job_names, owner_of

    if job is not None and "/" in job:
        directory = Path(job)
    else:
        names = [name for name in job_names(jobs_dir) if (jobs_dir / name / LEDGER).exists()]
        if not names:
            raise UsageError(f"there is no job in {jobs_dir}", advice="name its directory, or give --jobs-dir")
        if job is not None and job not in names:
            raise UsageError(f"there is no job {job} in {jobs_dir}", advice=did_you_mean(job, names))
        directory = jobs_dir / (job or names[0])
    if owner_of(directory) is None or not (directory / LEDGER).exists():
        raise UsageError(f"{directory} is not the directory of a job", advice="name one of those in jobs/")
    return directory


def _once(reader: LedgerReader, progress: Progress) -> int:
    from pytest_benchflow.reporting import status_line

    progress.learn(reader.news())
    print(status_line(progress, time.time()))
    return 1 if _was_killed(progress) else 0


def _follow(directory: Path, reader: LedgerReader, progress: Progress) -> int:
    from pytest_benchflow.jobs import last_tool_call
    from pytest_benchflow.reporting import Footer, log_line, status_block, status_line

    is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    print(f"{directory}: Ctrl-C ends the view, not the job", flush=True)
    footer = Footer(os.dup(sys.stdout.fileno())) if is_terminal else None
    next_line = time.monotonic()
    try:
        while True:
            progress.learn(reader.news())
            if progress.has_finished or progress.is_dead:
                break
            if footer is not None:
                size = footer.size
                lines = status_block(
                    progress,
                    time.time(),
                    width=size.columns - 1,
                    height=size.lines,
                    last_call=partial(last_tool_call, directory),
                    colors=not os.environ.get("NO_COLOR"),
                )
                footer.draw(lines)
            elif time.monotonic() >= next_line:
                print(log_line(progress, time.time()), flush=True)
                next_line = time.monotonic() + _LINE_SEC
            time.sleep(_FRAME_SEC)
    finally:
        if footer is not None:
            footer.close()
    print(status_line(progress, progress.ended or time.time()))
    if _was_killed(progress):
        print("the run was killed; --bf-resume continues it", file=sys.stderr)
        return 1
    return 0


def _was_killed(progress: Progress) -> bool:
    return not progress.has_finished and progress.is_dead
