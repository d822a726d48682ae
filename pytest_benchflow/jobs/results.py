"""Results that are on disk already: read back, and judged whether they still stand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pytest_benchflow.rollout import RolloutResult

RESULT = "result.json"
Key = tuple[str, str, str | None, str | None, int]


@dataclass(frozen=True, slots=True)
class Stored:
    """The results below a directory, and the files that could not be read."""

    results: tuple[RolloutResult, ...]
    unreadable: tuple[Path, ...] = ()


def read_results(directory: Path) -> Stored:
    """Return every result below a directory, in order of their paths; a broken file is told of and passed over."""
    results: list[RolloutResult] = []
    unreadable: list[Path] = []
    for path in sorted(directory.rglob(RESULT)):
        try:
            results.append(RolloutResult.model_validate(json.loads(path.read_bytes())))
        except (OSError, ValueError, ValidationError, RecursionError):
            unreadable.append(path)
    return Stored(tuple(results), tuple(unreadable))


def key_of(result: RolloutResult) -> Key:
    """Return what all attempts at the same rollout have in common."""
    return result.task_path, result.agent, result.model, result.scene, result.trial


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
    """Return the one outcome_class a result is counted in; a reward counts before any error text."""
    if result.status in ("passed", "failed", "skipped"):
        return result.status
    return "verifier_errored" if result.verifier_error is not None else "errored"
