"""A cache of task summaries, so that collecting a large benchmark again parses nothing."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from pytest_benchflow.configfile import TaskError, as_errors
from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.tasks.digest import SETTLED_NS
from pytest_benchflow.tasks.layout import layout_of, task_file
from pytest_benchflow.tasks.required_files import RequiredFile, missing_files
from pytest_benchflow.tasks.summary import TaskSummary

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


VERSION = 1
#: Time, size and inode of the task file, and the directories that the layout chose.
Stamp = tuple[int, int, int, str, str]


class Entry(NamedTuple):
    """What one parse of a task file found; the required files are checked again at every collection."""

    summary: TaskSummary
    required_files: tuple[RequiredFile, ...]
    solution_files: tuple[RequiredFile, ...]


class TaskIndex:
    """Summaries by path of the task file, valid while its stamp stays the same."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._stored: dict[str, list[object]] = {}
        self._changed = False
        self._used: set[str] = set()

    @classmethod
    def load(cls, path: Path | None) -> TaskIndex:
        """Read the cache at `path`; one that is missing, damaged or of another version is empty."""
        index = cls(path)
        try:
            content = json.loads(path.read_bytes()) if path is not None else None
        except (OSError, ValueError, RecursionError):
            content = None
        if isinstance(content, dict) and content.get("version") == VERSION:
            stored = content.get("tasks")
            index._stored = stored if isinstance(stored, dict) else {}
        return index

    def summary(
        self, directory: str, names: Collection[str] | None = None, *, strict: bool = False
    ) -> TaskSummary | None:
        """Return the summary of the task in a directory, None if there is no task; raise TaskError if it is broken.

        `names` are the entries of the directory, if the caller has listed it already.
        """
        file = task_file(directory, names)
        if file is None:
            return None
        stamp = _stamp(directory, file)
        entry = self._recall(file, stamp) or self._parse(directory, file, stamp)
        if entry is None:
            return None
        problems = missing_files(directory, entry.required_files)
        if problems or (strict and entry.summary.warnings):
            warnings = as_errors(entry.summary.warnings) if strict else entry.summary.warnings
            raise TaskError([*problems, *warnings])
        solved = all(file.exists(directory) for file in entry.solution_files)
        return entry.summary if entry.summary.has_solution == solved else entry.summary.solved(solved)

    def save(self) -> None:
        """Write the cache if it changed, atomically; a cache that cannot be written is not an error."""
        if self._path is None or not self._changed:
            return
        tasks = self._stored
        if len(tasks) > 2 * len(self._used) + 50_000:
            tasks = {file: entry for file, entry in tasks.items() if file in self._used}
        content = json.dumps({"version": VERSION, "tasks": tasks}, separators=(",", ":"))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, content, errors="surrogatepass")
        except OSError:
            return
        self._changed = False

    def _recall(self, file: str, stamp: Stamp | None) -> Entry | None:
        stored = self._stored.get(file)
        if stamp is None or stored is None:
            return None
        try:
            seen, summary, required_files, solution_files = stored
            if seen != [*stamp]:
                return None
            entry = Entry(
                TaskSummary.from_json(summary),  # type: ignore[arg-type]
                _required_files(required_files),
                _required_files(solution_files),
            )
        except (TypeError, ValueError):
            return None
        self._used.add(file)
        return entry

    def _parse(self, directory: str, file: str, stamp: Stamp | None) -> Entry | None:
        from pytest_benchflow.tasks.summary import parse_summary

        parsed = parse_summary(directory, file)
        if parsed is None:
            return None
        summary, required_files, solution_files = parsed
        if stamp is not None and time.time_ns() - stamp[0] > SETTLED_NS:
            self._stored[file] = [list(stamp), summary.to_json(), required_files, solution_files]
            self._used.add(file)
            self._changed = True
        return Entry(summary, required_files, solution_files)


def _stamp(directory: str, file: str) -> Stamp | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    layout = layout_of(directory, file)
    return status.st_mtime_ns, status.st_size, status.st_ino, layout.tests, layout.solution


def _required_files(stored: object) -> tuple[RequiredFile, ...]:
    return tuple(RequiredFile(kind, tuple(paths)) for kind, paths in stored)  # type: ignore[attr-defined]
