"""List the rollouts instead of running them."""

from __future__ import annotations

import pytest

from pytest_benchflow.items import RolloutItem
from pytest_benchflow.terminal import dry_run_lines
from pytest_benchflow.this_run import Run


def list_cells(session: pytest.Session, run: Run) -> bool:
    """Print the cells of the matrix and end the run."""
    items = [item for item in session.items if isinstance(item, RolloutItem)]
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and not session.testsfailed:
        reporter.section("dry run")
        for line in dry_run_lines(run, items):
            reporter.line(line)
    return True
