"""`bf report`: make pages of a finished job, or of one that still runs."""

from __future__ import annotations

import sys
from pathlib import Path


def write_page(source: Path, output: Path | None) -> int:
    """Write the page of a job; 2 if there is nothing to show or it cannot be written."""
    from pytest_benchflow.core.errors import BenchflowError
    from pytest_benchflow.reporting import read_report, write_html

    path = output or Path(f"{source.resolve().stem if source.is_file() else source.resolve().name}.html")
    try:
        report = read_report(source)
        write_html(report, path)
    except BenchflowError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{path} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    n = len(report.rollouts)
    print(f"{path}: {n} rollout{'' if n == 1 else 's'}")
    return 0
