"""What an agent is to the rollout: something to install in a sandbox and hold a session with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pytest_benchflow.core.types import Emit

if TYPE_CHECKING:
    from pytest_benchflow.core.network import Endpoint
    from pytest_benchflow.providers import HomeFile
    from pytest_benchflow.sandboxes import Mount, Sandbox
    from pytest_benchflow.tasks import McpServer, Task, TaskStep


class AgentOutcome(StrEnum):
    """How the agent ended; the reward, not this, decides whether the item passes."""

    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    NONZERO_EXIT = "nonzero_exit"
    CRASHED = "crashed"
    GAVE_UP = "gave_up"


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """What one role of a rollout asks of its agent."""

    model: str | None = None
    effort: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables given on purpose, which come before all others."""


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """How an agent reaches its model: worked out before anything starts, handed over inside, never written down."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: tuple[HomeFile, ...] = ()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Values that must not appear in any result, log or report."""
    model: str | None = None
    """The model as the agent itself spells it."""
    notes: tuple[str, ...] = ()
    auth_method: str | None = None
    """How the agent is to authenticate with what it was given, in its own word."""
    if_refused: str | None = None
    """What to tell the user when the provider refuses the credential."""
    endpoints: tuple[Endpoint, ...] = ()
    """The servers that the agent must reach, whatever network its task has."""


@dataclass(frozen=True, slots=True)
class AgentContext:
    """Everything an agent may use in one step of a rollout."""

    sandbox: Sandbox
    task: Task
    step: TaskStep
    request: AgentRequest
    access: ModelAccess
    user: str | int | None
    home: str
    cwd: str
    log_dir: Path
    """Host directory for what the agent prints beside the protocol."""
    emit: Emit
    mcp_servers: tuple[McpServer, ...] = ()
    idle_timeout_sec: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What model calls used; absent numbers are unknown, not zero."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class PromptResult:
    """How one prompt ended."""

    outcome: AgentOutcome
    detail: str | None = None
    n_tool_calls: int = 0
    usage: Usage = Usage()
    stop_reason: str | None = None
    message: str | None = None
    """The last thing the agent said."""


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
        """Return whether a model can be chosen for it."""

    @property
    def calls_model(self) -> bool:
        """Return whether it needs a credential and a network to reach a model."""

    @property
    def runs_as_task_user(self) -> bool:
        """Return whether it runs as the task's own user; any other agent gets the sandbox user."""

    def skip_reason(self, task: Task) -> str | None:
        """Return why this agent makes no sense on the task, or None."""

    def access(self, task: Task, request: AgentRequest) -> ModelAccess:
        """Return what the agent needs to reach its model; what is missing is an error before anything starts."""

    async def prepare_on_host(self, log_dir: Path) -> tuple[Mount, ...]:
        """Make on the host, once for all rollouts, what its sandboxes mount read-only."""

    async def install(self, context: AgentContext) -> None:
        """Make the agent ready in the sandbox."""

    async def connect(self, context: AgentContext) -> Session:
        """Open a session."""
