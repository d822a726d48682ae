"""An agent that gets a task right only on second thoughts: after a review, a hint, a skill, or by looking again."""

from __future__ import annotations

from dataclasses import dataclass, field

from fake_agent import FakeAgent, FakeSession

from pytest_benchflow.agents import AgentContext, AgentOutcome, PromptResult

RIGHT, WRONG = "echo right > /app/answer.txt", "echo wrong > /app/answer.txt"
LETTER = '{"to": "coder", "content": "The answer has to be right."}'

#: What a prompt says, and what the agent then does.
SCRIPT = (
    (
        "Review what is in the workspace",
        f"touch /app/spoiled; cat /app/answer.txt; echo '{LETTER}' >/app/.outbox/coder.json",
    ),
    ("The answer has to be right", RIGHT),
    ("Do not solve it", "echo 'Answer right.' > /app/generated-skill.md"),
    ("Read /app/generated-skill.md", "cat /app/generated-skill.md && rm /app/generated-skill.md"),
    ("tests do not pass", RIGHT),
    ("does not pass its tests", RIGHT),
)


@dataclass
class ScriptedSession(FakeSession):
    """Follows the script; one that has heard anything before answers better."""

    seen: list[str] = field(default_factory=list)

    async def prompt(self, text: str, *, timeout_sec: float | None) -> PromptResult:
        """Do what the script has for a prompt, else what it knows by now."""
        found = next((command for words, command in SCRIPT if words in text), None)
        command = found or (RIGHT if self.heard else WRONG)
        self.heard.append(text)
        done = await self.context.sandbox.exec(command, user=self.context.user, timeout_sec=timeout_sec)
        self.seen.append(done.stdout + done.stderr)
        self.context.emit({"type": "tool_call", "title": command})
        return PromptResult(AgentOutcome.COMPLETED, n_tool_calls=1, stop_reason="end_turn")


class ScriptedAgent(FakeAgent):
    """Opens sessions that follow the script."""

    async def connect(self, context: AgentContext) -> ScriptedSession:
        """Open a session that is remembered."""
        session = ScriptedSession(self, context)
        self.sessions.append(session)
        return session
