"""What a session is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_benchflow.events import Json


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
    effort: str | None = None
    effort_option: str | None = None
    """Configuration option that sets the effort; None means the one that says it is about thinking."""
    handshake_timeout_sec: float = 120.0
    """For each step of opening the session."""
    idle_timeout_sec: float | None = None
    cancel_grace_sec: float = 5.0
    """How long an agent that is cancelled may take to end its turn before it is killed."""
    max_line_bytes: int = 32 << 20
    """A longer line of the agent is skipped and noted."""
    name: str | None = None
    """What to call the agent in messages; None means what it calls itself."""
