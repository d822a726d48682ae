"""Loop strategies: ready users that send an agent back to its work."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pytest_benchflow.errors import BadValue
from pytest_benchflow.events import Json
from pytest_benchflow.hints import did_you_mean
from pytest_benchflow.rollout.users import BaseUser, RoundResult

Feedback = Literal["none", "counts", "names", "raw"]
StopReason = Literal["error", "passed_bar", "max_iterations", "strategy_stop"]

SINGLE_SHOT, VERIFY_RETRY, SELF_REVIEW = "single-shot", "verify-retry", "self-review"
MAX_FEEDBACK_CHARS = 4000
_PARAMETERS = {SINGLE_SHOT: (), VERIFY_RETRY: ("k", "feedback"), SELF_REVIEW: ("k",)}
_MAX_K = 10

# What pytest prints of a failed test, in its summary and in its verbose lines.
_FAILED = re.compile(r"^(?:(?:FAILED|ERROR) (\S+::\S+)|(\S+::\S+).* (?:FAILED|ERROR)\b)", re.MULTILINE)
_NAME = re.compile(r"[\w./:-]{1,200}")
_COUNTS = re.compile(r"(\d+) (passed|failed|errors?)\b")


@dataclass(frozen=True, slots=True)
class LoopStrategy:
    """How often and with what an agent is sent back."""

    name: str
    k: int = 0
    feedback: Feedback | None = None

    @property
    def max_user_rounds(self) -> int:
        """The first round and every retry."""
        return self.k + 1

    def user(self, threshold: float = 1.0) -> BaseUser | None:
        """Return a new user that does it; None if one round without a user is all there is."""
        if self.name == SELF_REVIEW:
            return SelfReviewUser(self.k)
        return VerifyRetryUser(self.k, self.feedback or "names", threshold) if self.name == VERIFY_RETRY else None

    def __str__(self) -> str:
        given = {"k": self.k or None, "feedback": self.feedback}
        text = ",".join(f"{key}={value}" for key, value in given.items() if value is not None)
        return f"{self.name}:{text}" if text else self.name


def parse_loop(text: str) -> LoopStrategy:
    """Read `single-shot`, `verify-retry:k=3,feedback=names` or `self-review:k=3`."""
    name, _, rest = text.strip().partition(":")
    if name not in _PARAMETERS:
        raise BadValue(f"loop strategy {text!r} is not known", advice=did_you_mean(name, _PARAMETERS))
    given: dict[str, str] = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key not in _PARAMETERS[name] or key in given:
            wanted = ", ".join(f"{key}=…" for key in _PARAMETERS[name]) or "nothing"
            raise BadValue(f"loop strategy {text!r} has {part.strip()!r}", advice=f"{name} takes {wanted}")
        given[key] = value
    if name == SINGLE_SHOT:
        return LoopStrategy(name)
    return LoopStrategy(name, _k(text, given.get("k", "3")), _feedback(text, name, given.get("feedback", "names")))


def _k(text: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= _MAX_K):
        raise BadValue(f"loop strategy {text!r} has k={value}", advice=f"give a whole number from 1 to {_MAX_K}")
    return int(value)


def _feedback(text: str, name: str, value: str) -> Feedback | None:
    if name != VERIFY_RETRY:
        return None
    levels: dict[str, Feedback] = {level: level for level in get_args(Feedback)}
    if value not in levels:
        raise BadValue(f"loop strategy {text!r} has feedback={value}", advice=did_you_mean(value, levels))
    return levels[value]


class VerifyRetryUser(BaseUser):
    """Send the agent back until the verifier is content, telling no more of the tests than is allowed."""

    def __init__(self, k: int = 3, feedback: Feedback = "names", threshold: float = 1.0) -> None:
        self.k = k
        self.feedback: Feedback = feedback
        self.threshold = threshold

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """Return the task, later with what is still wrong."""
        if round_result is None:
            return instruction
        if round > self.k or reaches(round_result, self.threshold):
            return None
        said = feedback_text(round_result, self.feedback)
        return (
            f"You have worked on this task before, and what is in the workspace does not pass its tests yet. {said}\n\n"
            f"Look at the workspace as it is now, find what is missing or wrong, and put it right.\n\n"
            f"The task:\n\n{instruction}"
        )


class SelfReviewUser(BaseUser):
    """Ask the agent to check its own work; what the verifier says is kept from it."""

    def __init__(self, k: int = 3) -> None:
        self.k = k

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """Return the task, later with the request to review."""
        if round_result is None:
            return instruction
        if round > self.k:
            return None
        return (
            "You have worked on this task before. Review what is in the workspace as a critical reader would: compare "
            "it with every requirement of the task, run what can be run, and correct what is not right. If everything "
            f"is right, change nothing.\n\nThe task:\n\n{instruction}"
        )


def reaches(result: RoundResult, threshold: float) -> bool:
    """Tell whether a round did well enough."""
    return result.reward is not None and result.reward >= threshold


_Writer: TypeAlias = Callable[[RoundResult], str]


def feedback_text(result: RoundResult, level: Feedback) -> str:
    """Say of a failed round what the level allows, within the limit."""
    writers: dict[Feedback, _Writer] = {"none": _nothing, "counts": _counts, "names": _names, "raw": _raw}
    return writers[level](result)[:MAX_FEEDBACK_CHARS].rstrip()


def failing_names(result: RoundResult) -> list[str]:
    """Return the failed tests by name: without parameters and free text, since these can hold expected values."""
    if result.checks is not None:
        given: Sequence[str] = result.checks.failed
    else:
        given = [one or other for one, other in _FAILED.findall(result.verifier_output or "")]
    names = (name.partition("[")[0].partition(" - ")[0].strip() for name in given)
    return list(dict.fromkeys(name for name in names if _NAME.fullmatch(name)))


def _nothing(result: RoundResult) -> str:
    return ""


def _counts(result: RoundResult) -> str:
    if result.checks is not None and result.checks.total:
        return f"{len(result.checks.passed)} of {result.checks.total} tests pass."
    found = _COUNTS.findall((result.verifier_output or "").strip().rpartition("\n")[2])
    passed = sum(int(number) for number, word in found if word == "passed")
    total = sum(int(number) for number, _ in found)
    return f"{passed} of {total} tests pass." if total else ""


def _names(result: RoundResult) -> str:
    names = failing_names(result)
    if not names:
        return _counts(result)
    return "\n".join([f"{_counts(result)} These fail:".strip(), *(f"- {name}" for name in names)])


def _raw(result: RoundResult) -> str:
    heading = "The output of the tests ends with:\n\n"
    output = (result.verifier_output or result.verifier_error or "").strip()
    return heading + output[-(MAX_FEEDBACK_CHARS - len(heading)) :] if output else _counts(result)


def loop_report(
    strategy: LoopStrategy,
    rounds: Sequence[RoundResult],
    *,
    threshold: float = 1.0,
    failed: bool = False,
    tokens: Sequence[int | None] = (),
) -> dict[str, Json]:
    """Return what a result says of a loop: how many rounds it took, and why it ended."""
    first = next((n for n, result in enumerate(rounds) if reaches(result, threshold)), None)
    used = [*tokens[: first + 1]] if first is not None else []
    return {
        "strategy": strategy.name,
        "params": {"k": strategy.k, **({"feedback": strategy.feedback} if strategy.feedback else {})},
        "iterations_run": len(rounds),
        "stop_reason": _stop_reason(strategy, rounds, threshold, failed),
        "reward_trajectory": [result.reward for result in rounds],
        "tokens_trajectory": [*tokens],
        "first_pass_iteration": first,
        "tokens_to_pass": sum(n for n in used if n is not None) if used and None not in used else None,
    }


def _stop_reason(strategy: LoopStrategy, rounds: Sequence[RoundResult], threshold: float, failed: bool) -> StopReason:
    if failed:
        return "error"
    if rounds and strategy.name == VERIFY_RETRY and reaches(rounds[-1], threshold):
        return "passed_bar"
    return "max_iterations" if len(rounds) >= strategy.max_user_rounds else "strategy_stop"
