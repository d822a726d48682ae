"""The agent that does nothing: a task it passes has a verifier that checks nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents.base import Access, AgentContext, AgentOutcome, AgentRequest, PromptResult

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Mount
    from pytest_benchflow.tasks import Task


class NopSession:
    """A session in which nothing happens."""

    async def prompt(self, text: str, *, timeout_sec: float | None) -> PromptResult:
        """Answer at once."""
        return PromptResult(AgentOutcome.COMPLETED)

    async def close(self) -> None:
        """Nothing to end."""


class NopAgent:
    """Leave the workspace as it is."""

    name = "nop"
    takes_model = False
    is_trusted = True

    def why_not(self, task: Task) -> str | None:
        """It can do nothing anywhere."""
        return None

    def access(self, task: Task, request: AgentRequest) -> Access:
        """It needs nothing."""
        return Access(env=request.env)

    async def provide(self, log_dir: Path) -> tuple[Mount, ...]:
        """Nothing to mount."""
        return ()

    async def install(self, context: AgentContext) -> None:
        """Nothing to install."""

    async def connect(self, context: AgentContext) -> NopSession:
        """Open the empty session."""
        return NopSession()
