"""What a session is asked for, and how to read foreign JSON without trusting its shape."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from pytest_benchflow.agents.manifest import Quirks
from pytest_benchflow.core.types import Json


def as_object(value: Json) -> dict[str, Json]:
    """Return a JSON object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return a JSON array, an empty one for anything else."""
    return value if isinstance(value, list) else []


def as_text(value: Json) -> str | None:
    """Return a string that says something, else None."""
    return value if isinstance(value, str) and value else None


def as_count(value: Json) -> int | None:
    """Return a number of things, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return None
    return int(value)


def at_path(value: Json, path: str) -> Json:
    """Return what a path of keys, joined by dots, leads to; None if it leads nowhere."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


class Findings(NamedTuple):
    """What the files of an agent tell since they were last read."""

    models: tuple[str, ...] = ()
    """Models that answered."""
    failures: tuple[str, ...] = ()
    """Reports of failed calls."""


Inspect: TypeAlias = Callable[[], Awaitable[Findings]]


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """How to open a session, and which model has to answer in it."""

    cwd: str
    mcp_servers: tuple[dict[str, Json], ...] = ()
    """In the shape of the protocol."""
    auth_method: str | None = None
    """Authenticate with this method if the agent offers it."""
    mode: str | None = None
    """Session mode to switch to if the agent offers it."""
    model: str | None = None
    """The model that has to answer, in the agent's own spelling."""
    model_by: Literal["auto", "config-option", "set-model", "launch"] = "auto"
    """How it is chosen; `launch` means it was before, and only what the agent reports is checked."""
    model_option: str = "model"
    model_aliases: Mapping[str, str] = field(default_factory=dict)
    """Short names by which the agent may report models."""
    effort: str | None = None
    effort_option: str | None = None
    """Configuration option that sets the effort; None means the one that says it is about thinking."""
    handshake_timeout_sec: float = 120.0
    """For each step of opening the session."""
    idle_timeout_sec: float | None = None
    leaves_programs: bool = False
    """Whether programs that the agent has started may go on when its session is closed."""
    cancel_grace_sec: float = 5.0
    """How long an agent that is cancelled may take to end its turn before it is killed."""
    max_line_bytes: int = 32 << 20
    """A longer line of the agent is skipped and noted."""
    meta: Mapping[str, object] = field(default_factory=dict)
    """What the agent is told beside the protocol."""
    name: str | None = None
    """What to call the agent in messages; None means what it calls itself."""
    quirks: Quirks = field(default_factory=Quirks)
