"""The index of a job's scores: what each came of, so that continuing the job reads none of that again.

One JSON array per line, appended by whichever process has a score, once its `result.json` is written. It is a cache: a
line counts only while the files that it speaks of are what they were, by time, size and inode. Where it says nothing or
something else than the disk, results, configurations and tasks are read instead; an index that is lost, cut short or
cannot be written costs time and never a score.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from dataclasses import fields
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from pytest_benchflow.jobs.results import RESULT, StoredFacts
from pytest_benchflow.rollout import RolloutConfig, RolloutResult
from pytest_benchflow.tasks import stamp_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_benchflow.tasks import Task

SCORES = "scores.jsonl"
_KNOWN_SETTINGS, _MOST_ATTEMPTS = 64, 32


class IndexedScore(NamedTuple):
    """A score, and what it came of."""

    rollout: str
    """The name of its directory."""
    successor: str
    """The name of the directory that another attempt would have."""
    key: str
    agent: str
    model: str | None
    task: str
    """The path of the task file."""
    task_stamp: str
    settings: str
    """The fingerprint of the configuration."""
    result_stamp: str


class ScoreIndex:
    """The index of one job."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._path = directory / SCORES
        self._by_rollout: dict[str, IndexedScore] | None = None
        self._by_key: dict[str, IndexedScore] = {}
        self._fingerprints = Fingerprints()

    def add(self, result: RolloutResult, config: RolloutConfig, task: Task, task_stamp: str | None) -> None:
        """Append a score that is on disk, of a task whose files had this stamp before they were read."""
        if task_stamp is None or result.rollout_dir is None or result.status not in ("passed", "failed"):
            return
        directory = result.rollout_dir
        stamp, successor = _file_stamp(f"{directory}/{RESULT}"), _successor(config, task, directory.name)
        if stamp is None or successor is None or str(directory.parent) != self._directory:
            return
        score = IndexedScore(
            rollout=directory.name,
            successor=successor,
            key=result.key,
            agent=result.agent,
            model=result.model,
            task=str(task.file),
            task_stamp=task_stamp,
            settings=self._fingerprints.of(config),
            result_stamp=stamp,
        )
        line = json.dumps(score).encode() + b"\n"
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                # In one write, so that lines of several processes never mix, and on a line of its own: what a kill or a
                # full disk has cut short must not take the next one with it.
                os.write(descriptor, b"\n" + line)
            finally:
                os.close(descriptor)

    def facts(self, rollout: str) -> StoredFacts | None:
        """Return whose result is in a directory; None if the index cannot tell."""
        score = self._scores.get(rollout)
        if score is None or _file_stamp(f"{self._directory}/{rollout}/{RESULT}") != score.result_stamp:
            return None
        return StoredFacts(score.key, score.agent, score.model, is_scored=True)

    def score(self, key: str, settings: str, task_file: str) -> RolloutResult | None:
        """Return the score of a rollout with this configuration; None unless nothing has changed since."""
        known = self._scores and self._by_key.get(key)
        if not known or known.settings != settings or known.task != task_file:
            return None
        path = f"{self._directory}/{known.rollout}/{RESULT}"
        if _file_stamp(path) != known.result_stamp or os.path.lexists(f"{self._directory}/{known.successor}"):
            return None
        directory, _, file = task_file.rpartition("/")
        if stamp_tree(directory, file) != known.task_stamp:
            return None
        try:
            with open(path, "rb") as stream:
                result = RolloutResult.model_validate_json(stream.read())
        except (OSError, ValidationError):
            return None
        place = Path(path).parent
        return result if result.rollout_dir == place else result.model_copy(update={"rollout_dir": place})

    def fingerprint(self, config: RolloutConfig) -> str:
        """Return what configurations have in common that differ in nothing that decides a score."""
        return self._fingerprints.of(config)

    @property
    def _scores(self) -> dict[str, IndexedScore]:
        if self._by_rollout is None:
            self._by_rollout = {}
            for score in _read(self._path):
                self._by_rollout[score.rollout] = self._by_key[score.key] = score
        return self._by_rollout


class Fingerprints:
    """Fingerprints of configurations, worked out once for those that differ only in task, place and number."""

    _VALUES = attrgetter(
        *sorted(
            {field.name for field in fields(RolloutConfig)}
            - {"task_path", "trial", "key", "jobs_dir", "job_name", "rollout_name"}
        )
    )

    def __init__(self) -> None:
        self._known: list[tuple[object, str]] = []

    def of(self, config: RolloutConfig) -> str:
        """Return the fingerprint of one."""
        values = Fingerprints._VALUES(config)
        for known, fingerprint in self._known:
            if known == values:
                return fingerprint
        text = json.dumps([config.primary_agent, config.primary_model, config.decisive()], sort_keys=True)
        fingerprint = hashlib.sha256(text.encode()).hexdigest()
        self._known = [(values, fingerprint), *self._known[: _KNOWN_SETTINGS - 1]]
        return fingerprint


def _read(path: Path) -> Iterator[IndexedScore]:
    """Yield the lines of an index that are whole."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        try:
            values = json.loads(line) if line else None
        except ValueError:
            continue
        if not isinstance(values, list) or len(values) != len(IndexedScore._fields):
            continue
        if all(isinstance(value, str) or (value is None and place == _MODEL) for place, value in enumerate(values)):
            score = IndexedScore(*values)
            # A job has many scores and few agents and configurations.
            yield score._replace(agent=sys.intern(score.agent), settings=sys.intern(score.settings))


_MODEL = IndexedScore._fields.index("model")


def _file_stamp(path: str) -> str | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_size} {status.st_ino}"


def _successor(config: RolloutConfig, task: Task, rollout: str) -> str | None:
    """Return the name of the directory of the attempt after the one in this directory."""
    names = (config.name_for(task.short_name, attempt) for attempt in range(1, _MOST_ATTEMPTS))
    return next((after for name, after in pairwise(names) if name == rollout), None)
