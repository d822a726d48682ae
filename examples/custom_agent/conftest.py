"""An agent of your own: anything that can work in a sandbox. Run it with `pytest tasks --bf-agent shell`."""

import os

from pytest_benchflow.agents import AgentOutcome, ModelAccess, PromptResult


class ShellSession:
    """Run one command per prompt."""

    def __init__(self, context):
        self.context = context

    async def prompt(self, text, *, timeout_sec):
        command = os.environ.get("SHELL_AGENT_COMMAND", "true")
        try:
            done = await self.context.sandbox.exec(command, user=self.context.user, timeout_sec=timeout_sec)
        except TimeoutError:
            return PromptResult(AgentOutcome.TIMED_OUT, f"stopped after {timeout_sec:g} s")
        self.context.emit({"type": "tool_call", "kind": "execute", "title": command, "status": "completed"})
        outcome = AgentOutcome.NONZERO_EXIT if done.return_code else AgentOutcome.COMPLETED
        return PromptResult(outcome, n_tool_calls=1)

    async def close(self):
        pass


class ShellAgent:
    """A very simple agent: it runs what the environment variable SHELL_AGENT_COMMAND says."""

    name = "shell"
    takes_model = False
    calls_model = False  # needs no credential and no network
    runs_as_task_user = True  # not as the unprivileged user that real agents get

    def skip_reason(self, task):
        return None

    def access(self, task, request):
        return ModelAccess(env=request.env)

    async def prepare_on_host(self, log_dir):
        return ()

    async def install(self, context):
        pass

    async def connect(self, context):
        return ShellSession(context)


def pytest_bf_register_agents(registry):
    """Make `--bf-agent shell` known."""
    registry.register(ShellAgent())
