"""`verifier.md` of the native layout: named strategies, one of which scores the task."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pytest_benchflow.hints import did_you_mean

from .front_matter import FrontMatterSource
from .problems import Problem, TaskError
from .text import read_text
from .values import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .sources import Path

StrategyType = Literal["script", "llm-judge", "reward-kit", "agent-judge", "ors-episode"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """The chosen strategy; a script runs `command` in the tests target, other types keep their settings."""

    name: str
    type: StrategyType
    command: str | None
    settings: Mapping[str, object]
    outputs: Mapping[str, object]


def read_strategy(directory: str) -> Strategy | None:
    """Return the strategy that `verifier.md` in `directory` chooses, None without such a file."""
    file = f"{directory}/verifier.md"
    if not os.path.lexists(file):
        return None
    source = FrontMatterSource(file, read_text(file))
    verifier = _mapping(source, ("verifier",))
    strategies = _mapping(source, ("verifier", "strategies"))
    name = verifier.get("default_strategy", next(iter(strategies), None))
    if name not in strategies:
        raise _problem(
            source,
            ("verifier", "default_strategy"),
            f"is {quoted(name)}",
            did_you_mean(str(name), strategies),
        )
    settings = _mapping(source, ("verifier", "strategies", str(name)))
    kind = settings.get("type")
    at = ("verifier", "strategies", str(name), "type")
    if kind not in get_args(StrategyType):
        raise _problem(source, at, f"is {quoted(kind)}", did_you_mean(str(kind), get_args(StrategyType)))
    command = settings.get("command")
    if kind == "script" and (not isinstance(command, str) or not command.strip()):
        at = (*at[:-1], "command")
        raise _problem(source, at, f"is {quoted(command)}", "give the command to run, for example ./test.sh")
    outputs = verifier.get("outputs")
    return Strategy(
        str(name),
        kind,  # type: ignore[arg-type]
        command if isinstance(command, str) else None,
        settings,
        outputs if isinstance(outputs, dict) else {},
    )


def _mapping(source: FrontMatterSource, path: Path) -> dict[str, object]:
    value: object = source.data
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, dict) or not value:
        raise _problem(source, path, "is missing" if value is None else f"is {quoted(value)}", "give a mapping")
    return {str(key): item for key, item in value.items()}


def _problem(source: FrontMatterSource, path: Path, reason: str, fix: str) -> TaskError:
    return TaskError([Problem(source.file, source.line(path), source.key(path), reason, fix)])
