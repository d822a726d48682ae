"""A job as the viewer sees it: results on disk, and what its ledger says of rollouts that still run.

Nothing is written, no link is followed, and what has not changed is not read again.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.jobs import (
    CONFIG,
    LEDGER,
    MARKER,
    RESULT,
    LedgerReader,
    Progress,
    Tally,
    latest_attempts,
    results_in,
    rollout_directories,
)
from pytest_benchflow.reporting.html.page_data import overview_of, rollout_json
from pytest_benchflow.reporting.html.rollout_files import config_of, events_json
from pytest_benchflow.reporting.stored import report_of

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json
    from pytest_benchflow.jobs import JobEvent
    from pytest_benchflow.rollout import RolloutResult

_MOST_BYTES = 16 << 20
Signature = tuple[int, ...]


class ViewedJob:
    """One job; safe for threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._results: dict[Path, tuple[Signature, RolloutResult | None]] = {}
        self._running: dict[str, JobEvent] = {}
        self._progress = Progress()
        self._reader: LedgerReader | None = None

    def state(self) -> str:
        """Return a text that differs whenever something in the job may have changed; cheap enough to ask often."""
        return "-".join(map(str, (*_signature(self.directory / LEDGER), *_signature(self.directory))))

    def overview(self) -> dict[str, Json]:
        """Return what the page of the job shows."""
        state = self.state()
        with self._lock:
            self._refresh()
            results, running = self._latest(), [*self._running.values()]
        report = report_of(results, self.directory)
        overview = overview_of(report, self.directory.name)
        rows = overview["rollouts"]
        assert isinstance(rows, list)
        rows += [_running_row(event) for event in running]
        return {**overview, "running": len(running), "state": state}

    def rollout(self, identity: str) -> bytes | None:
        """Return everything about a rollout, also of one that still runs; None if there is no such rollout."""
        with self._lock:
            self._refresh()
            event = self._running.get(identity)
            result = next((each for each in self._latest() if (each.key or each.rollout_name) == identity), None)
        if event is not None:
            return self._partial_json(event)
        return None if result is None else rollout_json(result, _MOST_BYTES)

    def card(self) -> dict[str, Json]:
        """Return what the list of jobs says of it."""
        with self._lock:
            self._refresh()
            tally, running = Tally.of(self._latest()), len(self._running)
        return {
            "name": self.directory.name,
            "rollouts": len(tally.results) + running,
            "running": running,
            "passed": tally.n("passed"),
            "failed": tally.n("failed"),
            "errors": tally.n("error"),
            "cost_usd": tally.cost_usd,
        }

    def _latest(self) -> list[RolloutResult]:
        """Return the result of each rollout that does not run again right now."""
        results = latest_attempts(result for _, result in self._results.values() if result is not None)
        return [each for each in results if each.key not in self._running]

    def _refresh(self) -> None:
        known, self._results = self._results, {}
        for directory in rollout_directories(self.directory):
            signature = _signature(directory / RESULT)
            old = known.get(directory)
            self._results[directory] = (
                old if old is not None and old[0] == signature else (signature, _result(directory, signature))
            )
        self._learn()

    def _learn(self) -> None:
        if self._reader is None:
            if not _signature(self.directory / LEDGER):
                return
            self._reader = LedgerReader(self.directory / LEDGER)
        for event in self._reader.news():
            self._progress.learn([event])
            if event.kind == "begin":
                self._running.clear()
            elif event.kind == "start":
                self._running[event.key] = event
            elif event.kind == "phase" and event.key in self._running:
                self._running[event.key] = replace(self._running[event.key], phase=event.phase, rollout=event.rollout)
            elif event.kind == "end":
                self._running.pop(event.key, None)
        if self._progress.has_finished or self._progress.is_dead:
            self._running.clear()

    def _partial_json(self, event: JobEvent) -> bytes:
        """Return what there is of a rollout that runs."""
        name = event.rollout or ""
        directory = next((each for each in rollout_directories(self.directory) if each.name == name), None)
        events, note = (b"[]", None) if directory is None else events_json(directory, _MOST_BYTES)
        rest: dict[str, Json] = {
            "result": {
                "task_name": event.task,
                "agent": event.agent,
                "model": event.model,
                "sandbox": event.sandbox,
                "phase": event.phase,
                "rollout_dir": None if directory is None else str(directory),
            },
            "verifier": None,
            "config": None if directory is None else config_of(directory),
            "left_out": note,
        }
        return json.dumps(rest)[:-1].encode() + b', "events": ' + events + b"}"


def _running_row(event: JobEvent) -> dict[str, Json]:
    where = (event.phase or "start").replace("_", " ")
    return {
        "id": event.key,
        "status": "running",
        "task": event.task or event.key,
        "agent": event.agent,
        "model": event.model,
        "scene": event.scene,
        "trial": event.trial or 1,
        "message": f"{where}, attempt {event.attempt}" if (event.attempt or 1) > 1 else where,
    }


def _result(directory: Path, signature: Signature) -> RolloutResult | None:
    """Return the result of a rollout, None if it has none that can be read."""
    results = results_in([directory / RESULT]).results if signature else ()
    return next(iter(results), None)


def _signature(path: Path) -> Signature:
    """Return what tells one state of a file or directory from another; nothing of what is neither."""
    try:
        status = os.lstat(path)
    except OSError:
        return ()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


class ViewedJobs:
    """All jobs below a directory; a directory that is a job itself, or a rollout, is the only one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self._jobs: dict[str, ViewedJob] = {}
        self.single = ViewedJob(self.directory) if _is_job(self.directory) else None

    def find(self, name: str) -> ViewedJob | None:
        """Return the job of a name; only what is really in the directory is found, and no link."""
        if name in self._names():
            return self._jobs.setdefault(name, ViewedJob(self.directory / name))
        return None

    def cards(self) -> list[Json]:
        """Return what the list says of each job, the one that changed last first."""
        jobs = [(self._changed(name), self.find(name)) for name in self._names()]
        ordered = sorted(((at, job) for at, job in jobs if job is not None), key=lambda pair: -pair[0])
        return [{**job.card(), "changed": _iso(at)} for at, job in ordered]

    def state(self) -> str:
        """Return a text that differs whenever some job may have changed."""
        return "/".join(f"{name}-{ViewedJob(self.directory / name).state()}" for name in self._names())

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.directory) as entries:
                return sorted(entry.name for entry in _folders(entries) if _is_job(Path(entry.path)))
        except OSError:
            return []

    def _changed(self, name: str) -> float:
        paths = (self.directory / name, self.directory / name / LEDGER)
        return max(signature[2] / 1e9 if (signature := _signature(path)) else 0.0 for path in paths)


def _folders(entries: Iterable[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    return (entry for entry in entries if entry.is_dir(follow_symlinks=False))


def _is_job(directory: Path) -> bool:
    """Return whether a directory is a job, or a rollout by itself; folders of older releases have no marker."""
    if any(_signature(directory / name) for name in (MARKER, LEDGER, RESULT, CONFIG)):
        return True
    try:
        with os.scandir(directory) as entries:
            return any(_signature(Path(entry.path, RESULT)) for entry in _folders(entries))
    except OSError:
        return False


def _iso(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
