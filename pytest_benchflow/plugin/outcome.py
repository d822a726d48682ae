"""Turn a result into what pytest shows: an outcome, and a short text that says what to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_benchflow.rollout import RolloutResult


_SHOWN_CHECKS = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What pytest is to report."""

    kind: Literal["passed", "failed", "error", "skipped"]
    text: str = ""


def judge(result: RolloutResult, *, must_fail: bool = False) -> Verdict:
    """Decide the outcome of an item; with `must_fail` (the nop agent in a self-test) passing is the failure."""
    if result.status == "skipped":
        return Verdict("skipped", result.skipped or "")
    if result.status == "cancelled":
        return Verdict("skipped", "the rollout was cancelled before it ended")
    if result.status == "error":
        return Verdict("error", error_text(result))
    if result.passed and must_fail:
        text = f"{result.agent} passed: the verifier gives {result.reward:.2f} to an agent that did nothing"
        return Verdict("failed", " · ".join([text, *_where(result)]))
    if result.passed or must_fail:
        return Verdict("passed")
    return Verdict("failed", failure_text(result))


def failure_text(result: RolloutResult) -> str:
    """Say how far the agent got, in one line: reward, checks, what failed, where to look."""
    reward, threshold = _told_apart(result.reward or 0.0, result.threshold)
    parts = [f"reward {reward} is below {threshold}"]
    if result.checks is not None:
        total = result.checks.passed + result.checks.failed
        parts.append(f"{result.checks.passed} of {total} checks passed")
        parts += [f"failing: {_listed(result.checks.failing)}"] if result.checks.failing else []
    if result.agent_detail:
        parts.append(f"agent: {result.agent_detail}")
    return " · ".join([*parts, *_where(result)])


def error_text(result: RolloutResult) -> str:
    """Say what broke in the harness, and in which phase."""
    error = result.error
    head = "no reward and no error" if error is None else f"{error.category} error in {error.phase}: {error.message}"
    return (" · " if "\n" not in head else "\n").join([head, *_where(result)])


def _told_apart(reward: float, threshold: float) -> tuple[str, str]:
    """Write both numbers with two decimals, or with as many more as it takes to see that they differ."""
    for digits in range(2, 17):
        shown = f"{reward:.{digits}f}", f"{threshold:.{digits}f}"
        if shown[0] != shown[1]:
            return shown
    return repr(reward), repr(threshold)


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN_CHECKS
    return ", ".join(names[:_SHOWN_CHECKS]) + (f" and {more} more" if more > 0 else "")


def _where(result: RolloutResult) -> list[str]:
    if result.rollout_dir is None:
        return []
    here = Path.cwd()
    path = result.rollout_dir
    return [str(path.relative_to(here) if path.is_relative_to(here) else path)]
