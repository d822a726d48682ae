"""The results of the whole run, gathered where pytest was started: from reports, so xdist makes no difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from pytest_benchflow.reporting import Entry, Report

RESULTS = pytest.StashKey["Results"]()


@dataclass
class Results:
    """Raw results by node id, with what pytest made of each."""

    started_at: str = ""
    raw: dict[str, dict[str, object]] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)

    def add(self, report: pytest.TestReport) -> None:
        """Take what a report of any phase says about a rollout."""
        raw: dict[str, object] | None = getattr(report, "bf", None)
        if raw is not None:
            self.raw[report.nodeid] = raw
            self.outcomes[report.nodeid] = "quarantined" if getattr(report, "bf_quarantine", False) else "passed"
        if report.nodeid in self.raw and self.outcomes[report.nodeid] != "quarantined":
            self._judge(report)

    def entries(self, order: Sequence[str]) -> list[Entry]:
        """Return the results as entries of the report, in the order of collection if it is known."""
        from pytest_benchflow.reporting import Entry

        place = {nodeid: number for number, nodeid in enumerate(order)}

        return [
            Entry.model_validate({"id": nodeid, "status": self.outcomes[nodeid], "result": raw})
            for nodeid, raw in sorted(self.raw.items(), key=lambda pair: place.get(pair[0], 0))
        ]

    def report(self, order: Sequence[str], *, exit_status: int, job_dir: str | None, finished_at: str) -> Report:
        """Return the report of the run."""
        from pytest_benchflow.reporting import Report, group

        entries = self.entries(order)
        return Report(
            tool_version=version("pytest-benchflow"),
            started_at=self.started_at,
            finished_at=finished_at,
            exit_status=exit_status,
            job_dir=job_dir,
            summary=group(entries),
            rollouts=entries,
        )

    def notes(self) -> list[str]:
        """Return what the rollouts have to say, each thing once, the most common first."""
        found = Counter(note for raw in self.raw.values() for note in cast("list[str]", raw["notes"]))
        return [f"{note} ({count} rollouts)" if count > 1 else note for note, count in found.most_common()]

    def job_directory(self) -> str | None:
        """Return where the results are, None if there are none."""
        found = next((raw["rollout_dir"] for raw in self.raw.values() if raw["rollout_dir"]), None)
        return str(found).rpartition("/")[0] if found else None

    def _judge(self, report: pytest.TestReport) -> None:
        if report.skipped:
            ran = self.raw[report.nodeid]["skipped"] is None
            self.outcomes[report.nodeid] = "failed" if ran and hasattr(report, "wasxfail") else "skipped"
        elif report.failed:
            self.outcomes[report.nodeid] = "failed" if report.when == "call" else "error"


def results_of(config: pytest.Config) -> Results:
    """Return the results gathered so far."""
    return config.stash.setdefault(RESULTS, Results())
