"""An agent made of plain Python that does in the sandbox what its prompt says, and remembers its conversation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pytest_benchflow.agents import AgentContext, AgentOutcome, AgentRegistry, AgentRequest, ModelAccess, PromptResult
from pytest_benchflow.sandboxes import Mount
from pytest_benchflow.tasks import Task


@dataclass
class FakeSession:
    """A conversation; lines of a prompt that start with `$ ` are run."""

    agent: FakeAgent
    context: AgentContext
    heard: list[str] = field(default_factory=list)

    async def prompt(self, text: str, *, timeout_sec: float | None) -> PromptResult:
        """Run the commands of a prompt."""
        self.heard.append(text)
        self.context.emit({"type": "user_message", "text": text})
        commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
        for command in commands:
            done = await self.context.sandbox.exec(command, user=self.context.user, timeout_sec=timeout_sec)
            self.context.emit({"type": "tool_call", "title": command, "output": done.stdout + done.stderr})
        return PromptResult(AgentOutcome.COMPLETED, n_tool_calls=len(commands), stop_reason="end_turn", message="Done.")

    async def close(self) -> None:
        """Nothing to end."""


@dataclass
class FakeAgent:
    """Remembers every session that was opened with it."""

    name: str
    sessions: list[FakeSession] = field(default_factory=list)
    takes_model: bool = True
    calls_model: bool = True
    runs_as_task_user: bool = False

    def skip_reason(self, task: Task) -> str | None:
        """It can run anywhere."""
        return None

    def access(self, task: Task, request: AgentRequest) -> ModelAccess:
        """It needs nothing."""
        return ModelAccess(env=request.env, model=request.model)

    async def prepare_on_host(self, log_dir: Path) -> tuple[Mount, ...]:
        """Nothing to mount."""
        return ()

    async def install(self, context: AgentContext) -> None:
        """Nothing to install."""

    async def connect(self, context: AgentContext) -> FakeSession:
        """Open a session that is remembered."""
        self.sessions.append(FakeSession(self, context))
        return self.sessions[-1]

    @property
    def heard(self) -> list[list[str]]:
        """What was said to it, session by session."""
        return [session.heard for session in self.sessions]

    @property
    def models(self) -> list[str | None]:
        """The model asked for, session by session."""
        return [session.context.request.model for session in self.sessions]


def registry_of(*agents: FakeAgent) -> AgentRegistry:
    """Return a registry that knows these agents too."""
    registry = AgentRegistry()
    for agent in agents:
        registry.register(agent)
    return registry
