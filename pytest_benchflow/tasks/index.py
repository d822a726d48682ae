"""A cache of task heads, so that collecting a large benchmark again parses nothing."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from pytest_benchflow.configfile import TaskError, as_errors
from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.tasks.layout import layout_of, task_file
from pytest_benchflow.tasks.required_files import RequiredFile, missing_files
from pytest_benchflow.tasks.summary import TaskSummary

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


VERSION = 1
#: A file written again within a tick of the file system's clock looks unchanged: too fresh to remember.
SETTLED_NS = 20_000_000


#: Time, size and inode of the task file, and the directories that the layout chose.
Stamp = tuple[int, int, int, str, str]


class Entry(NamedTuple):
    """What one parse of a task file found; the needs are checked again at every collection."""

    head: TaskSummary
    needs: tuple[RequiredFile, ...]
    solutions: tuple[RequiredFile, ...]


class TaskIndex:
    """Heads by path of the task file, valid while its stamp stays the same."""

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

    def head(self, directory: str, names: Collection[str] | None = None, *, strict: bool = False) -> TaskSummary | None:
        """Return the head of the task in a directory, None if it is no task; raise TaskError if it is broken.

        `names` are the entries of the directory, if the caller has listed it already.
        """
        file = task_file(directory, names)
        if file is None:
            return None
        stamp = _stamp(directory, file)
        entry = self._recall(file, stamp) or self._parse(directory, file, stamp)
        if entry is None:
            return None
        problems = missing_files(directory, entry.needs)
        if problems or (strict and entry.head.warnings):
            warnings = as_errors(entry.head.warnings) if strict else entry.head.warnings
            raise TaskError([*problems, *warnings])
        solved = all(need.met(directory) for need in entry.solutions)
        return entry.head if entry.head.has_solution == solved else entry.head.solved(solved)

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
            seen, head, needs, solutions = stored
            if seen != [*stamp]:
                return None
            entry = Entry(TaskSummary.from_json(head), _needs(needs), _needs(solutions))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return None
        self._used.add(file)
        return entry

    def _parse(self, directory: str, file: str, stamp: Stamp | None) -> Entry | None:
        from pytest_benchflow.tasks.summary import parse_head

        found = parse_head(directory, file)
        if found is None:
            return None
        head, needs, solutions = found
        if stamp is not None and time.time_ns() - stamp[0] > SETTLED_NS:
            self._stored[file] = [list(stamp), head.to_json(), needs, solutions]
            self._used.add(file)
            self._changed = True
        return Entry(head, needs, solutions)


def _stamp(directory: str, file: str) -> Stamp | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    layout = layout_of(directory, file)
    return found.st_mtime_ns, found.st_size, found.st_ino, layout.tests, layout.solution


def _needs(stored: object) -> tuple[RequiredFile, ...]:
    return tuple(RequiredFile(kind, tuple(paths)) for kind, paths in stored)  # type: ignore[attr-defined]
