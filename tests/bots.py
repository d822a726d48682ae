"""A conftest with agents that do what prompts tell them: enough to see who was told what, as whom, in which session."""

from __future__ import annotations

BOTS = """
import itertools
import os

from pytest_benchflow.agents import ModelAccess, AgentOutcome, PromptResult, Usage

SESSIONS = itertools.count(1)


class BotSession:
    agent_name = "Bot"
    agent_version = "1.0"

    def __init__(self, context):
        self.context = context
        self.number = next(SESSIONS)

    async def prompt(self, text, *, timeout_sec):
        self.context.emit({"type": "user_message", "text": text, "session": self.number})
        calls, cost = 0, None
        for line in text.splitlines():
            if line.startswith("RUN: "):
                calls += 1
                done = await self.context.sandbox.exec(
                    line.removeprefix("RUN: "),
                    user=self.context.user,
                    cwd=self.context.cwd,
                    env=self.context.access.env,
                )
                said = done.stdout + done.stderr
                self.context.emit({"type": "tool_call", "status": str(done.return_code), "content": said})
            if line.startswith("COST: "):
                cost = float(line.removeprefix("COST: "))
            if line == "CRASH":
                return PromptResult(AgentOutcome.CRASHED, "exit status 1", calls)
        said = f"done with {len(text)} characters"
        self.context.emit({"type": "agent_message", "text": said})
        self.context.emit({"type": "stop", "models": [self.context.access.env["BOT_MODEL"]]})
        return PromptResult(
            AgentOutcome.COMPLETED,
            None,
            calls,
            Usage(input=10, output=2, cost_usd=cost),
            stop_reason="end_turn",
            message=said,
        )

    async def close(self):
        self.context.emit({"type": "closed", "session": self.number})


class Bot:
    takes_model = True
    calls_model = True
    runs_as_task_user = False
    skill_dirs = ("$HOME/.bot/skills",)

    def __init__(self, name):
        self.name = name

    def skip_reason(self, task):
        return None

    def access(self, task, request):
        key = request.env.get("BOT_KEY") or os.environ.get("BOT_KEY")
        if self.name == "paid-bot" and not key:
            from pytest_benchflow.core.errors import CredentialsError

            raise CredentialsError("BOT_KEY required but not set", advice="set it")
        return ModelAccess(
            env={**request.env, "BOT_MODEL": request.model or "own"}, secrets=frozenset([key] if key else [])
        )

    async def prepare_on_host(self, log_dir):
        return ()

    async def install(self, context):
        pass

    async def connect(self, context):
        return BotSession(context)


def pytest_bf_register_agents(registry):
    for name in ("bot", "other-bot", "paid-bot"):
        registry.register(Bot(name))
"""
