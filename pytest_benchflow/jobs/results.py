"""Results on disk: read them back, choose among attempts, and say what each counts as."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from pytest_benchflow.rollout import ErrorInfo, RolloutConfig, RolloutResult, utc_now

RESULT = "result.json"
CONFIG = "config.json"
Key = tuple[str, str, str, str | None, str | None, int]


@dataclass(frozen=True, slots=True)
class Stored:
    """The results below a directory, and the files that could not be read."""

    results: tuple[RolloutResult, ...]
    unreadable: tuple[Path, ...] = ()


def rollout_directories(directory: Path) -> Iterator[Path]:
    """Yield the directories of all rollouts below one, in order; what agents left inside them is not searched."""
    if (directory / CONFIG).exists() or (directory / RESULT).exists():
        yield directory
        return
    for name in sorted(_folders(directory)):
        yield from rollout_directories(directory / name)


class StoredFacts(NamedTuple):
    """What of a result says whose it is, read at a tenth of the price of the whole."""

    key: str
    agent: str
    model: str | None
    is_scored: bool


def stored_facts(job: Path, indexed: Callable[[str], StoredFacts | None]) -> Iterator[StoredFacts]:
    """Yield the facts of every readable result of a job; what is indexed by the name of its directory is not read."""
    for name in sorted(_folders(job)):
        facts = indexed(name)
        yield from _read_facts(job / name) if facts is None else [facts]


def _folders(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _read_facts(folder: Path) -> Iterator[StoredFacts]:
    for directory in rollout_directories(folder):
        try:
            data = json.loads((directory / RESULT).read_bytes())
            yield StoredFacts(str(data["key"]), str(data["agent"]), data["model"], data["reward"] is not None)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue


def unfinished_rollouts(directory: Path) -> tuple[Path, ...]:
    """Return the directories of rollouts that have no result: they were killed, or still run."""
    started = (path for path in rollout_directories(directory) if not (path / RESULT).exists())
    return tuple(path for path in started if _rollout_name(path / CONFIG) == path.name)


def _rollout_name(config: Path) -> object:
    try:
        data: object = json.loads(config.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return data.get("rollout_name") if isinstance(data, dict) else None


def read_results(directory: Path) -> Stored:
    """Return every result below a directory, in order of their paths."""
    paths = (path / RESULT for path in rollout_directories(directory))
    return results_in(path for path in paths if path.exists())


def results_in(paths: Iterable[Path]) -> Stored:
    """Read results; files that cannot be read, or are not there, are named beside them.

    A result is of the directory that it is in, also where the job has been moved or copied since.
    """
    results: list[RolloutResult] = []
    unreadable: list[Path] = []
    for path in paths:
        try:
            result = RolloutResult.model_validate(json.loads(path.read_bytes()))
            results.append(result.model_copy(update={"rollout_dir": path.parent}))
        except (OSError, ValueError, ValidationError, RecursionError):
            unreadable.append(path)
    return Stored(tuple(results), tuple(unreadable))


def key_of(result: RolloutResult) -> Key:
    """Return what all attempts at the same rollout have in common."""
    return result.key, result.task_path, result.agent, result.model, result.scene, result.trial


def latest_attempts(results: Iterable[RolloutResult]) -> list[RolloutResult]:
    """Return one result per rollout: of several attempts the one that was scored, and of those the newest."""
    best: dict[Key, RolloutResult] = {}
    for result in results:
        key = key_of(result)
        if key not in best or _rank(result) >= _rank(best[key]):
            best[key] = result
    return list(best.values())


def _rank(result: RolloutResult) -> tuple[bool, str]:
    return result.reward is not None, result.finished_at


def outcome_class(result: RolloutResult) -> str:
    """Return the one class that a result is counted in: its status, with errors of the verifier apart."""
    if result.status != "error":
        return result.status
    return "verifier_errored" if result.verifier_error is not None else "errored"


def not_started(
    config: RolloutConfig,
    *,
    name: str,
    error: ErrorInfo | None = None,
    skipped: str | None = None,
    notes: Sequence[str] = (),
) -> RolloutResult:
    """Return the result of a rollout that could not even start; its task is called `name`."""
    now = utc_now()
    return RolloutResult(
        task_name=name,
        task_path=str(config.task_path.absolute()),
        rollout_name="",
        key=config.key,
        agent=config.agent,
        model=config.model,
        scene=config.scene,
        trial=config.trial,
        sandbox=config.sandbox,
        threshold=config.threshold,
        error=error,
        skipped=skipped,
        notes=[*notes],
        started_at=now,
        finished_at=now,
    )
