"""`bf report`, `bf view` and `bf compare`: jobs as pages, in a file or live, and beside each other."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pytest_benchflow.cli.output import write_errors
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
    compare = commands.add_parser(
        "compare",
        help="what regressed, what improved, and what there is no evidence for",
        description="Compare jobs task by task with the first of them: a paired test over the tasks that both scored,"
        " what changed in each task, and what was configured differently.",
    )
    compare.add_argument("sources", type=Path, nargs="+", metavar="PATH", help=f"{_SOURCE}; the first is the baseline")
    compare.add_argument("--html", type=Path, metavar="FILE", help="also write a page, with trajectories side by side")
    compare.add_argument("--json", action="store_true", help="everything, as JSON")
    compare.set_defaults(action=_compare)


def _report(options: argparse.Namespace) -> int:
    """Write the page of a job; 2 if there is nothing to show or it cannot be written."""
    from pytest_benchflow.reporting import read_report, write_html

    source = options.source.resolve()
    path = options.output or Path(f"{source.stem if source.is_file() else source.name}.html")
    report = read_report(options.source)
    with write_errors(path):
        write_html(report, path)
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


def _compare(options: argparse.Namespace) -> int:
    """Print the comparison; 0 whatever it says, since deciding is what gates are for."""
    from pytest_benchflow.reporting import ComparedJobs, print_comparison, read_report, write_comparison

    if len(options.sources) < 2:
        raise UsageError("there is one job to compare", advice="name at least two")
    jobs = ComparedJobs.of([(source, read_report(source)) for source in options.sources])
    if options.json:
        print(json.dumps(jobs.as_json(), indent=2))
    else:
        print_comparison(jobs, sys.stdout)
    if options.html is not None:
        with write_errors(options.html):
            write_comparison(jobs, options.html)
        print(options.html, file=sys.stderr if options.json else sys.stdout)
    return 0


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; expected a number up to 65535")
    return int(text)
