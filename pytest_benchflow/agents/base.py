"""What an agent is to the rollout: something to install in a sandbox and hold a session with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.tasks import Stage, Task

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Event: TypeAlias = dict[str, Json]


class AgentOutcome(StrEnum):
    """How the agent ended; the reward, not this, decides whether the item passes."""

    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    NONZERO_EXIT = "nonzero_exit"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class AgentContext:
    """Everything an agent may use in one stage of a rollout."""

    sandbox: Sandbox
    task: Task
    stage: Stage
    env: Mapping[str, str]
    user: str | int | None
    emit: Callable[[Event], None]
    """Append one event to the trajectory on disk."""


@dataclass(frozen=True, slots=True)
class PromptResult:
    """How one prompt ended."""

    outcome: AgentOutcome
    detail: str | None = None
    n_tool_calls: int = 0


@runtime_checkable
class Session(Protocol):
    """An open conversation with an agent."""

    async def prompt(self, text: str, *, timeout_sec: float | None) -> PromptResult:
        """Send one prompt and wait for its end; a prompt over time is stopped inside the sandbox and reported."""

    async def close(self) -> None:
        """End the agent and all its processes; idempotent."""


@runtime_checkable
class Agent(Protocol):
    """One entry of the registry."""

    @property
    def name(self) -> str:
        """The word users choose it by."""

    @property
    def takes_model(self) -> bool:
        """Whether a model can be chosen for it."""

    def why_not(self, task: Task) -> str | None:
        """Return why this agent makes no sense on the task, or None."""

    def environment(self, task: Task) -> dict[str, str]:
        """Return the variables the agent needs on the task; one that is missing is an error before anything starts."""

    async def install(self, context: AgentContext) -> None:
        """Make the agent ready in the sandbox."""

    async def connect(self, context: AgentContext) -> Session:
        """Open a session."""
