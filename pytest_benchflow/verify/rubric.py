"""Rewards in Python: functions that score a directory, and the rubric that weighs them.

A function that raises, or that lacks what it reads, is an error of the verifier and never a zero.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from pytest_benchflow.core.errors import BadType, BadValue, RewardError, VerifierError
from pytest_benchflow.core.text import one_line
from pytest_benchflow.verify.rewards import REWARD_JSON, REWARD_TXT, primary_reward, read_rewards

Space: TypeAlias = Literal["output", "action", "reasoning", "memory", "latent"]
Granularity: TypeAlias = Literal["terminal", "step"]

T = TypeVar("T")

_MAX_ANSWER_BYTES = 10_000_000
_ROUNDING = 1e-9


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass
class RewardEvent:
    """One signal of a reward: the whole of it (`terminal`), a check (`process`) or a criterion (`dense`)."""

    type: str
    reward: float
    source: str
    step: int | None = None
    space: Space = "output"
    granularity: Granularity = "terminal"
    ts: str = field(default_factory=_utc_now)


@dataclass
class VerifyResult:
    """What a rubric makes of a directory; with an `error` there is no reward.

    result = await rubric.score(rollout_dir=directory)
    reward = result.require()  # raises a VerifierError where a function failed
    """

    reward: float | None
    items: dict[str, float] = field(default_factory=dict)
    """The score of each function that gave one."""
    events: list[RewardEvent] = field(default_factory=list)
    error: str | None = None
    space: Space = "output"
    granularity: Granularity = "terminal"

    def require(self) -> float:
        """Return the reward, or raise what kept it from being known."""
        if self.error is not None or self.reward is None:
            raise VerifierError(self.error or "the rubric gave no reward")
        return self.reward


@runtime_checkable
class RewardFunc(Protocol):
    """Whatever scores the directory of a rollout, or of a verifier."""

    async def score(self, rollout_dir: Path) -> float:
        """Return the score; what cannot be scored raises."""
        ...


@dataclass
class Rubric:
    """Scores a directory by several functions at once, and adds their scores by weight.

        rubric = Rubric([TestRewardFunc(), StringMatchRewardFunc(expected="hello world")], weights=[0.7, 0.3])
        result = await rubric.score(rollout_dir=directory)

    Without weights all functions count the same. Given weights are used as they are; `normalize=True` divides them by
    their sum. A function that fails makes the result an error, and so does a sum outside `reward_range`.
    """

    reward_funcs: Sequence[RewardFunc]
    weights: Sequence[float] | None = None
    normalize: bool = False
    reward_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        weights = self.weights
        if weights is None:
            return
        if len(weights) != len(self.reward_funcs):
            raise BadValue(
                f"{len(weights)} weights for {len(self.reward_funcs)} reward functions", advice="give one for each"
            )
        for weight in weights:
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
                raise BadValue(f"the weight {weight!r} is not a finite number")
        if self.normalize and sum(weights) <= 0:
            raise BadValue(f"the weights {_listed(weights)} have no positive sum to be divided by")

    async def score(self, rollout_dir: Path | str) -> VerifyResult:
        """Return the weighted sum of all scores."""
        if not self.reward_funcs:
            raise BadValue("a rubric without reward functions scores nothing", advice="give it at least one")
        directory = Path(rollout_dir)
        scores = await asyncio.gather(*(_score(each, directory) for each in self.reward_funcs), return_exceptions=True)
        names = _names(self.reward_funcs)
        result = VerifyResult(None)
        faults = []
        for name, function, score in zip(names, self.reward_funcs, scores, strict=True):
            if isinstance(score, Exception):
                faults.append(f"{name}: {_said(score)}")
            elif isinstance(score, BaseException):
                raise score
            else:
                result.items[name] = score
                result.events.append(RewardEvent("terminal", score, name))
                result.events += getattr(function, "events", ())
        if faults:
            result.error = "; ".join(faults)
        else:
            self._add(result)
        return result

    def _add(self, result: VerifyResult) -> None:
        """Add the scores up; a sum that no reward can be is the fault of the weights."""
        weights = self._weights()
        total = math.fsum(weight * score for weight, score in zip(weights, result.items.values(), strict=True))
        low, high = self.reward_range
        if low - _ROUNDING <= total <= high + _ROUNDING:
            result.reward = min(max(total, low), high)
        else:
            result.error = (
                f"the weights {_listed(weights)} give {total:g}, outside [{low:g}, {high:g}]; "
                "pass normalize=True, or a wider reward_range"
            )

    def _weights(self) -> list[float]:
        if self.weights is None:
            return [1 / len(self.reward_funcs)] * len(self.reward_funcs)
        divisor = math.fsum(self.weights) if self.normalize else 1.0
        return [weight / divisor for weight in self.weights]


class TestRewardFunc:
    """The reward that a verifier left: `reward.json` or `reward.txt` in the directory or in its `verifier/`.

    Without either it raises, unless `missing` says what that is worth.
    """

    __test__ = False  # pytest would take it for a class of tests

    def __init__(self, *, missing: float | None = None) -> None:
        self.missing = missing

    async def score(self, rollout_dir: Path) -> float:
        """Return what the files say, read as strictly as a verifier's."""
        places = (Path(rollout_dir), Path(rollout_dir) / "verifier")
        place = next((each for each in places if any((each / name).is_file() for name in _REWARD_FILES)), None)
        if place is not None:
            return primary_reward(await asyncio.to_thread(read_rewards, place, policy={}))
        if self.missing is None:
            raise RewardError(
                f"there is no {' or '.join(_REWARD_FILES)} in {rollout_dir}",
                advice="give the directory of a rollout or of its verifier, or missing=0.0",
            )
        return self.missing


_REWARD_FILES = (REWARD_JSON, REWARD_TXT)


class StringMatchRewardFunc:
    """1.0 if `answer.txt` says what is expected, else 0.0; `fuzzy` is satisfied if it contains that, in any case.

    It is read in the directory or among the artifacts of a rollout. Without one it raises, unless `missing` says what
    that is worth.
    """

    def __init__(
        self, expected: str, fuzzy: bool = False, *, file: str = "answer.txt", missing: float | None = None
    ) -> None:
        if not isinstance(expected, str):
            raise BadType(f"expected is {expected!r}", advice="give a string")
        self.expected = expected
        self.fuzzy = fuzzy
        self.file = file
        self.missing = missing

    async def score(self, rollout_dir: Path) -> float:
        """Compare the answer, without space around it."""
        path = _answer(Path(rollout_dir), self.file)
        if path is None:
            if self.missing is None:
                raise RewardError(f"there is no {self.file} in {rollout_dir}", advice="missing=0.0 makes that a 0")
            return self.missing
        if path.stat().st_size > _MAX_ANSWER_BYTES:
            return 0.0
        answer = (await asyncio.to_thread(path.read_text, "utf-8", "replace")).strip()
        expected = self.expected.strip()
        if self.fuzzy:
            return float(expected.casefold() in answer.casefold())
        return float(answer == expected)


def _answer(directory: Path, name: str) -> Path | None:
    places = (directory / name, directory / "artifacts" / name, directory / "artifacts/logs/artifacts" / name)
    return next((path for path in places if path.is_file() and not path.is_symlink()), None)


class CodeExecRewardFunc:
    """What a function of yours returns for the directory: a finite number, or true or false.

    An ordinary function runs in a thread of its own, a coroutine function on the loop.
    """

    def __init__(self, func: Callable[[Path], float | Awaitable[float]]) -> None:
        if not callable(func):
            raise BadType(f"func is {func!r}", advice="give a function of a path")
        self.func = func

    async def score(self, rollout_dir: Path) -> float:
        """Call the function."""
        call: Callable[[], float | Awaitable[float]] = partial(self.func, Path(rollout_dir))
        value = call() if inspect.iscoroutinefunction(self.func) else await _in_thread(call)
        return await value if isinstance(value, Awaitable) else value


async def _in_thread(call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, call)


async def _score(function: RewardFunc, directory: Path) -> float:
    """Return a function's score, which has to be a finite number."""
    value: object = await function.score(directory)
    if isinstance(value, VerifyResult):
        value = value.require()
    if not isinstance(value, int | float):
        raise RewardError(f"its score is {one_line(repr(value))[:60]}", advice="return a number")
    if not math.isfinite(value):
        raise RewardError(f"its score is {value}", advice="return a finite number")
    return float(value)


def _names(functions: Sequence[RewardFunc]) -> list[str]:
    """Return the class name of each, numbered from the second of a class on."""
    names: list[str] = []
    seen: dict[str, int] = {}
    for function in functions:
        name = type(function).__name__
        n = seen[name] = seen.get(name, -1) + 1
        names.append(f"{name}_{n}" if n else name)
    return names


def _said(error: Exception) -> str:
    text = one_line(str(error))
    return text if isinstance(error, VerifierError | RewardError) else f"{type(error).__name__}: {text}"


def _listed(weights: Sequence[float]) -> str:
    return f"[{', '.join(f'{weight:g}' for weight in weights)}]"
