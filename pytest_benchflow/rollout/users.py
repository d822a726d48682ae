"""Users: what is said to the agent next, decided after each round by looking at what came of it."""

from __future__ import annotations

import copy
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from pytest_benchflow.errors import BadValue
from pytest_benchflow.hints import did_you_mean
from pytest_benchflow.verify import headline

if TYPE_CHECKING:
    from pytest_benchflow.events import Event, Json
    from pytest_benchflow.verify import Checks


@dataclass(frozen=True)
class RoundResult:
    """What came of one round: the agent's own part of the trajectory, and what a verifier says so far."""

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
        """The one number that a threshold looks at."""
        return headline(dict(self.rewards)) if self.rewards else None


class BaseUser:
    """Somebody who talks to the agent in rounds; override `run`, and `setup` to prepare."""

    async def setup(self, instruction: str, solution: str | None = None) -> None:
        """Get ready; the solution comes only with oracle access."""

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """Return the prompt of a round, counted from 0, or None to stop; the first round has no result to look at."""
        raise NotImplementedError(f"{type(self).__name__} has no run()")


class PassthroughUser(BaseUser):
    """Hand over the task's prompt and leave it at that."""

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """Return the instruction once."""
        return instruction if round == 0 else None


Say: TypeAlias = Callable[[int, str, RoundResult | None], "str | Awaitable[str | None] | None"]


class FunctionUser(BaseUser):
    """Let a function, sync or async, decide what to say."""

    def __init__(self, fn: Say) -> None:
        self.fn = fn

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """Return what the function returns."""
        said = self.fn(round, instruction, round_result)
        return await said if inspect.isawaitable(said) else said


def load_user(reference: str, base: Path | None = None) -> BaseUser:
    """Return a new user from `module:object` or `file.py:object`, looked for beside `base` first.

    The object is a subclass of BaseUser, a function, or a user, which is copied: no two rollouts share one.
    """
    place, _, name = reference.partition(":")
    if not place or not name:
        raise BadValue(f"user {reference!r} names no object", advice="write module:object or file.py:object")
    module = _module(reference, place, base)
    found: object = getattr(module, name, None)
    if found is None:
        public = [each for each in vars(module) if not each.startswith("_")]
        raise BadValue(f"user {reference!r}: {place} has no {name}", advice=did_you_mean(name, public))
    if isinstance(found, type) and issubclass(found, BaseUser):
        return found()
    if isinstance(found, BaseUser):
        return copy.deepcopy(found)
    if callable(found) and not isinstance(found, type):
        return FunctionUser(found)
    raise BadValue(f"user {reference!r} is {type(found).__name__}", advice="name a subclass of BaseUser or a function")


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
    result: RoundResult,
    *,
    prompt: str,
    wall_sec: float,
    tokens: int | None = None,
    feedback_level: str | None = None,
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
