"""Users: they decide after each round, from its result, what the next prompt to the agent is."""

from __future__ import annotations

import copy
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from pytest_benchflow.core.errors import BadValue
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.core.types import Json
from pytest_benchflow.verify import primary_reward

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Event
    from pytest_benchflow.verify import Checks


@dataclass(frozen=True)
class RoundResult:
    """The result of one round: its events, and what the verifier says of the work so far."""

    round: int
    trajectory: Sequence[Event] = ()
    rewards: Mapping[str, float] | None = None
    verifier_output: str | None = None
    verifier_error: str | None = None
    n_tool_calls: int = 0
    scene: str | None = None
    role: str | None = None
    handoff_from: str | None = None
    handoff_to: str | None = None
    checks: Checks | None = None

    @property
    def reward(self) -> float | None:
        """The number that is compared with the threshold."""
        return primary_reward(dict(self.rewards)) if self.rewards else None


class BaseUser:
    """The one who prompts the agent in rounds; override `run`, and `setup` to prepare."""

    async def setup(self, instruction: str, solution: str | None = None) -> None:
        """Get ready; the solution comes only with oracle access."""

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """Return the prompt of a round, counted from 0, or None to stop; the first round has no result to look at."""
        raise NotImplementedError(f"{type(self).__name__} has no run()")


class PassthroughUser(BaseUser):
    """Send the task's prompt once."""

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """Return the instruction once."""
        return instruction if round == 0 else None


Say: TypeAlias = Callable[[int, str, RoundResult | None], "str | Awaitable[str | None] | None"]


class FunctionUser(BaseUser):
    """Let a function, sync or async, return the prompts."""

    def __init__(self, fn: Say) -> None:
        self.fn = fn

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """Return what the function returns."""
        prompt = self.fn(round, instruction, round_result)
        return await prompt if inspect.isawaitable(prompt) else prompt


def load_user(reference: str, base: Path | None = None) -> BaseUser:
    """Return a new user from `module:object` or `file.py:object`, looked for beside `base` first.

    The object is a subclass of BaseUser, a function, or a user, which is copied: no two rollouts share one.
    """
    place, _, name = reference.partition(":")
    if not place or not name:
        raise BadValue(f"user {reference!r} does not name an object", advice="write module:object or file.py:object")
    module = _module(reference, place, base)
    target: object = getattr(module, name, None)
    if target is None:
        public = [each for each in vars(module) if not each.startswith("_")]
        raise BadValue(f"user {reference!r}: {place} has no {name}", advice=did_you_mean(name, public))
    if isinstance(target, type) and issubclass(target, BaseUser):
        return target()
    if isinstance(target, BaseUser):
        return copy.deepcopy(target)
    if callable(target) and not isinstance(target, type):
        return FunctionUser(target)
    raise BadValue(f"user {reference!r} is {type(target).__name__}", advice="name a subclass of BaseUser or a function")


def _module(reference: str, place: str, base: Path | None) -> ModuleType:
    file = (base or Path()) / (place if place.endswith(".py") else f"{place}.py")
    try:
        if file.is_file():
            return _from_file(file)
        if not place.endswith(".py"):
            return importlib.import_module(place)
    except Exception as error:
        advice = "it has to be importable where pytest runs"
        raise BadValue(f"user {reference!r}: {type(error).__name__}: {error}", advice=advice) from error
    raise BadValue(f"user {reference!r}: there is no {file}", advice="paths are relative to the file that names them")


def _from_file(file: Path) -> ModuleType:
    name = f"bf_user_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def round_record(
    result: RoundResult, *, prompt: str, wall_sec: float, tokens: int | None = None, feedback_level: str | None = None
) -> dict[str, Json]:
    """Return the line of `user_rounds.jsonl` for a round."""
    record: dict[str, Json] = {
        "round": result.round,
        "scene": result.scene,
        "role": result.role,
        "handoff_from": result.handoff_from,
        "handoff_to": result.handoff_to,
        "prompt": prompt,
        "rewards": None if result.rewards is None else dict(result.rewards),
        "verifier_error": result.verifier_error,
        "n_tool_calls": result.n_tool_calls,
        "n_trajectory_events": len(result.trajectory),
        "wall_sec": round(wall_sec, 3),
        "tokens": tokens,
    }
    return record if feedback_level is None else {**record, "feedback_level": feedback_level}


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
        parameters = {"k": self.k or None, "feedback": self.feedback}
        text = ",".join(f"{key}={value}" for key, value in parameters.items() if value is not None)
        return f"{self.name}:{text}" if text else self.name


def parse_loop(text: str) -> LoopStrategy:
    """Read `single-shot`, `verify-retry:k=3,feedback=names` or `self-review:k=3`."""
    name, _, rest = text.strip().partition(":")
    if name not in _PARAMETERS:
        raise BadValue(f"loop strategy {text!r} is not known", advice=did_you_mean(name, _PARAMETERS))
    parameters: dict[str, str] = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key not in _PARAMETERS[name] or key in parameters:
            known = ", ".join(f"{key}=…" for key in _PARAMETERS[name]) or "nothing"
            raise BadValue(f"loop strategy {text!r} has {part.strip()!r}", advice=f"{name} takes {known}")
        parameters[key] = value
    if name == SINGLE_SHOT:
        return LoopStrategy(name)
    return LoopStrategy(
        name, _k(text, parameters.get("k", "3")), _feedback(text, name, parameters.get("feedback", "names"))
    )


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
    """Send the agent back until the reward is high enough, with as much feedback from the tests as is allowed."""

    def __init__(self, k: int = 3, feedback: Feedback = "names", threshold: float = 1.0) -> None:
        self.k = k
        self.feedback: Feedback = feedback
        self.threshold = threshold

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """Return the task, later with what is still wrong."""
        if round_result is None:
            return instruction
        if round > self.k or reaches_threshold(round_result, self.threshold):
            return None
        hints = feedback_text(round_result, self.feedback)
        return (
            "You have worked on this task before, and what is in the workspace does not pass its tests yet. "
            f"{hints}\n\n"
            "Look at the workspace as it is now, find what is missing or wrong, and put it right.\n\n"
            f"The task:\n\n{instruction}"
        )


class SelfReviewUser(BaseUser):
    """Ask the agent to check its own work, without telling it what the verifier says."""

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


def reaches_threshold(result: RoundResult, threshold: float) -> bool:
    """Return whether the reward of a round is high enough."""
    return result.reward is not None and result.reward >= threshold


_Writer: TypeAlias = Callable[[RoundResult], str]


def feedback_text(result: RoundResult, level: Feedback) -> str:
    """Return what the level allows to tell of a failed round, within the limit."""
    writers: dict[Feedback, _Writer] = {"none": _nothing, "counts": _counts, "names": _names, "raw": _raw}
    return writers[level](result)[:MAX_FEEDBACK_CHARS].rstrip()


def failing_names(result: RoundResult) -> list[str]:
    """Return the failed tests by name: without parameters and free text, since these can hold expected values."""
    if result.checks is not None:
        failed: Sequence[str] = result.checks.failed
    else:
        failed = [one or other for one, other in _FAILED.findall(result.verifier_output or "")]
    names = (name.partition("[")[0].partition(" - ")[0].strip() for name in failed)
    return list(dict.fromkeys(name for name in names if _NAME.fullmatch(name)))


def _nothing(result: RoundResult) -> str:
    return ""


def _counts(result: RoundResult) -> str:
    if result.checks is not None and result.checks.total:
        return f"{len(result.checks.passed)} of {result.checks.total} tests pass."
    counts = _COUNTS.findall((result.verifier_output or "").strip().rpartition("\n")[2])
    passed = sum(int(number) for number, word in counts if word == "passed")
    total = sum(int(number) for number, _ in counts)
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
    """Return the content of `loop.json`: how many rounds there were, and why they ended."""
    first = next((n for n, result in enumerate(rounds) if reaches_threshold(result, threshold)), None)
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
    if rounds and strategy.name == VERIFY_RETRY and reaches_threshold(rounds[-1], threshold):
        return "passed_bar"
    return "max_iterations" if len(rounds) >= strategy.max_user_rounds else "strategy_stop"
