"""`bf report` and `bf view`: jobs as pages, in a file or live."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_benchflow.core.errors import UsageError

_SOURCE = "a job, a folder of jobs, or a --bf-json file"
_PORT = 8888


def add_reports(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    report = commands.add_parser("report", help="write a page to look at, all in one file")
    report.add_argument("source", type=Path, metavar="PATH", help=_SOURCE)
    report.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page (default: the job's name, here)")
    report.set_defaults(action=_report)
    view = commands.add_parser("view", help="look at jobs in a browser, also while they run")
    view.add_argument("directory", type=Path, metavar="PATH", help="a job, or a folder of jobs")
    view.add_argument("--port", type=_port, default=_PORT, metavar="N", help="0 is any free one (default: %(default)s)")
    view.set_defaults(action=_view)


def _report(options: argparse.Namespace) -> int:
    """Write the page of a job; 2 if there is nothing to show or it cannot be written."""
    from pytest_benchflow.reporting import read_report, write_html

    source = options.source.resolve()
    path = options.output or Path(f"{source.stem if source.is_file() else source.name}.html")
    report = read_report(options.source)
    try:
        write_html(report, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", advice="choose another with -o") from None
    n = len(report.rollouts)
    print(f"{path}: {n} rollout{'' if n == 1 else 's'}")
    return 0


def _view(options: argparse.Namespace) -> int:
    from pytest_benchflow.reporting import serve

    def announce(url: str) -> None:
        print(f"{url}  (Ctrl-C ends it)", flush=True)

    serve(options.directory, options.port, announce)
    print(file=sys.stderr)
    return 0


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; expected a number up to 65535")
    return int(text)
