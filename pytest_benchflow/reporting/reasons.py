"""Why a rollout did not pass, in words: the same for pytest, JUnit files, comments and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.core.text import one_line

if TYPE_CHECKING:
    from pytest_benchflow.rollout import RolloutResult
    from pytest_benchflow.verify import CriterionScore

_SHOWN_CHECKS = 5
_SHOWN_CRITERIA = 3


def reason(result: RolloutResult) -> str:
    """Return why a rollout did not pass, nothing if it did."""
    if result.status == "error":
        return error_reason(result)
    if result.status == "failed":
        return " · ".join(failure_reasons(result))
    return (result.skipped or "") if result.status == "skipped" else ""


def failure_reasons(result: RolloutResult) -> list[str]:
    """Say how far the agent got: reward, checks, what failed, and what became of the agent."""
    reward, threshold = _told_apart(result.reward or 0.0, result.threshold)
    missed = result.reward is None or result.reward < result.threshold
    parts = [f"reward {reward} is below {threshold}"]
    if not missed:
        parts = [f"reward {result.reward:.2f}, but a defence was tripped"]
    if result.checks is not None:
        total = result.checks.passed + result.checks.failed
        parts.append(f"{result.checks.passed} of {total} checks passed")
        parts += [f"failing: {_listed(result.checks.failing)}"] if result.checks.failing else []
    if lacking := [each for each in result.criteria if each.value < 1]:
        parts.append(f"{'criteria' if result.judge is None else 'judge'}: {_verdicts(lacking)}")
    if result.agent_detail:
        parts.append(f"agent: {result.agent_detail}")
    if result.integrity:
        from pytest_benchflow.verify import listed_findings

        parts.append(f"integrity: {listed_findings(result.integrity)}")
    return parts


def error_reason(result: RolloutResult) -> str:
    """Say what broke in the harness, and in which phase."""
    error = result.error
    return "no reward and no error" if error is None else f"{error.category} error in {error.phase}: {error.message}"


def _told_apart(reward: float, threshold: float) -> tuple[str, str]:
    """Write both numbers with two decimals, or with as many more as it takes to see that they differ."""
    for digits in range(2, 17):
        shown = f"{reward:.{digits}f}", f"{threshold:.{digits}f}"
        if shown[0] != shown[1]:
            return shown
    return repr(reward), repr(threshold)


def _verdicts(criteria: list[CriterionScore]) -> str:
    """Write the lowest criteria with their reasons."""
    lowest = sorted(criteria, key=lambda each: each.value)[:_SHOWN_CRITERIA]
    more = len(criteria) - len(lowest)
    told = (f"{each.name} {each.value:.2f}" + (f" ({one_line(each.reason)})" if each.reason else "") for each in lowest)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN_CHECKS
    return ", ".join(names[:_SHOWN_CHECKS]) + (f" and {more} more" if more > 0 else "")
