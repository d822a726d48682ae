"""Turn a result into what pytest shows: an outcome, and a short text that says what to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_benchflow.reporting import error_reason, failure_reasons

if TYPE_CHECKING:
    from pytest_benchflow.rollout import RolloutResult


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
    return " · ".join([*failure_reasons(result), *_where(result)])


def error_text(result: RolloutResult) -> str:
    """Say what broke in the harness, and in which phase."""
    head = error_reason(result)
    return (" · " if "\n" not in head else "\n").join([head, *_where(result)])


def _where(result: RolloutResult) -> list[str]:
    if result.rollout_dir is None:
        return []
    here = Path.cwd()
    path = result.rollout_dir
    return [str(path.relative_to(here) if path.is_relative_to(here) else path)]
