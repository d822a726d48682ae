"""A sandbox and an agent as a user's own package would have them, with every type written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_benchflow.agents import (
    Agent,
    AgentContext,
    AgentOutcome,
    AgentRequest,
    ModelAccess,
    PromptResult,
    Session,
    Usage,
)
from pytest_benchflow.sandboxes import Backend, BackendOption, Capabilities, Leftovers, Mount, Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend
from pytest_benchflow.tasks import Task


class CompanyBackend:
    """The local sandbox, with a variable of the company in it."""

    name = "company"
    options = (BackendOption("variable", "name of the company's variable", default="COMPANY"),)

    def __init__(self) -> None:
        self._local = LocalBackend()
        self._env: Mapping[str, str] = {}

    def configure(self, values: Mapping[str, str]) -> None:
        self._env = {values["variable"]: "ours"}

    @property
    def capabilities(self) -> Capabilities:
        return self._local.capabilities

    async def preflight(self) -> None:
        await self._local.preflight()

    def create(self, spec: SandboxSpec) -> Sandbox:
        return self._local.create(replace(spec, env={**self._env, **spec.env}))

    def leftovers(self, *, unused_for_sec: float | None = None) -> Sequence[Leftovers]:
        return self._local.leftovers(unused_for_sec=unused_for_sec)

    async def aclose(self) -> None:
        await self._local.aclose()


class GreetingSession:
    """Write the file that the task asks for, if this is the company's sandbox."""

    def __init__(self, context: AgentContext) -> None:
        self.context = context

    async def prompt(self, text: str, *, timeout_sec: float | None) -> PromptResult:
        command = '[ "$COMPANY" = ours ] && echo "Hello, world!" >/app/hello.txt'
        done = await self.context.sandbox.exec(command, user=self.context.user, timeout_sec=timeout_sec)
        self.context.emit({"type": "tool_call", "kind": "execute", "title": command, "status": "completed"})
        outcome = AgentOutcome.NONZERO_EXIT if done.return_code else AgentOutcome.COMPLETED
        return PromptResult(outcome, done.stderr or None, n_tool_calls=1, usage=Usage(input=len(text)))

    async def close(self) -> None:
        pass


class GreetingAgent:
    """An agent made of Python alone."""

    name = "greeting"
    takes_model = False
    calls_model = False
    runs_as_task_user = True

    def skip_reason(self, task: Task) -> str | None:
        return None if task.steps else "it has no steps"

    def access(self, task: Task, request: AgentRequest) -> ModelAccess:
        return ModelAccess(env=request.env)

    async def prepare_on_host(self, log_dir: Path) -> tuple[Mount, ...]:
        return ()

    async def install(self, context: AgentContext) -> None:
        pass

    async def connect(self, context: AgentContext) -> Session:
        return GreetingSession(context)


def make_backend() -> Backend:
    return CompanyBackend()


def make_agent() -> Agent:
    return GreetingAgent()
