"""What the model can answer: words, intents that become tool calls, and everything a bad provider does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Ending = Literal["complete", "cut", "refused"]


@dataclass(frozen=True, slots=True)
class Say:
    """Words; the agent's turn ends with them."""

    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A text exactly as it is, also where the answer has to fit a schema, and how it ended."""

    text: str
    ending: Ending = "complete"


@dataclass(frozen=True, slots=True)
class Run:
    """A shell command, through whatever tool the agent offers for one."""

    command: str


@dataclass(frozen=True, slots=True)
class Write:
    """A file, through whatever tool the agent offers for one, else through its shell."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool by its own name, whether the agent offers it or not."""

    tool: str
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Together:
    """Words and several tool calls in one answer."""

    calls: tuple[Run | Write | Call, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Slow:
    """An answer that takes its time: so many seconds before each piece of it."""

    reply: Say | Verbatim | Run | Write | Call | Together
    seconds: float = 0.2


@dataclass(frozen=True, slots=True)
class As:
    """An answer that another model gives than the one that was asked."""

    model: str
    reply: Say | Verbatim | Run | Write | Call | Together


@dataclass(frozen=True, slots=True)
class Fail:
    """An HTTP error in the provider's own shape; `times` limits it, then the script goes on."""

    status: int
    times: int | None = None
    message: str | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """Silence until the client leaves: before any answer, or after the answer has begun."""

    begun: bool = False
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Garbage:
    """A successful answer that is no answer."""

    times: int | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """A connection that is reset: before any answer, or after the answer has begun."""

    begun: bool = False
    times: int | None = None


Answering = Say | Verbatim | Run | Write | Call | Together | Slow | As
Trouble = Fail | Stall | Garbage | Reset
Reply = Answering | Trouble
DONE = Say("Done.")
"""What the model says when its script has come to an end."""
