"""Join the reports of the shards of one run into the report of the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.text import counted
from pytest_benchflow.reporting.judgement import FAILED, INTERNAL_ERROR, NO_TESTS, OK
from pytest_benchflow.reporting.report import Entry, Report, group


@dataclass(frozen=True, slots=True)
class Merged:
    """The report of the whole, without gates, and what it lacks."""

    report: Report
    status: int
    """What pytest would have ended with, had it run everything."""
    lost: Sequence[str]
    """What is known to be missing, each in words."""


def merge_reports(parts: Sequence[tuple[str, Report]]) -> Merged:
    """Join reports, each with the name of its file; those that do not belong together are refused."""
    for what, values in (
        ("of another format", {name: part.schema_version for name, part in parts}),
        ("written by another version", {name: part.tool_version for name, part in parts}),
    ):
        _refuse_mixture(what, values)
    entries = [entry for _, part in parts for entry in part.rollouts]
    _refuse_doubles(parts)
    lost = [*_missing_shards(parts), *(f"{nodeid} never reported" for _, part in parts for nodeid in part.missing)]
    for name, part in parts:
        if part.exit_status not in (OK, FAILED, NO_TESTS):
            lost.append(f"{name} is of a run that ended with exit status {part.exit_status}")
    statuses = {part.exit_status for _, part in parts}
    status = FAILED if FAILED in statuses else OK if OK in statuses else NO_TESTS
    directories = {part.job_dir for _, part in parts}
    report = Report(
        tool_version=parts[0][1].tool_version,
        python=parts[0][1].python,
        started_at=min(part.started_at for _, part in parts),
        finished_at=max(part.finished_at for _, part in parts),
        exit_status=INTERNAL_ERROR if lost else status,
        job_dir=directories.pop() if len(directories) == 1 else None,
        missing=[nodeid for _, part in parts for nodeid in part.missing],
        failed_tests=sum(part.failed_tests for _, part in parts),
        summary=group(entries),
        rollouts=entries,
    )
    return Merged(report, INTERNAL_ERROR if lost else status, lost)


def _refuse_mixture(what: str, values: dict[str, str]) -> None:
    common = Counter(values.values()).most_common(1)[0][0]
    for name, value in values.items():
        if value != common:
            raise UsageError(f"{name} is {what}: {value}, not {common}", advice="run all shards with one version")


def _refuse_doubles(parts: Iterable[tuple[str, Report]]) -> None:
    homes: dict[str, str] = {}
    doubles: list[tuple[Entry, str, str]] = []
    for name, part in parts:
        for entry in part.rollouts:
            if entry.id in homes:
                doubles.append((entry, homes[entry.id], name))
            homes.setdefault(entry.id, name)
    if doubles:
        entry, first, second = doubles[0]
        more = f" and {len(doubles) - 1} more" if len(doubles) > 1 else ""
        place = f"{first} and {second}" if first != second else f"{first} twice"
        raise UsageError(f"{entry.id}{more} is in {place}", advice="give the report of each shard once")


def _missing_shards(parts: Sequence[tuple[str, Report]]) -> list[str]:
    """Return which slices nobody gave; that is known only if the run was sliced by --bf-shard."""
    known = {name: part.shard for name, part in parts if part.shard is not None}
    if not known:
        return []
    sizes = {name: str(shard[1]) for name, shard in known.items()}
    _refuse_mixture("a slice of another number", sizes)
    whole = [name for name, _ in parts if name not in known]
    if whole:
        raise UsageError(f"{whole[0]} is not a slice, and {next(iter(known))} is", advice="give slices of one run")
    total = int(next(iter(sizes.values())))
    missing = sorted({*range(1, total + 1)} - {shard[0] for shard in known.values()})
    return (
        [f"{counted(len(missing), 'slice')} missing: " + ", ".join(f"{n}/{total}" for n in missing)] if missing else []
    )
