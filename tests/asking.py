"""The three wire protocols that judges and reviewers ask in, each led to a scripted model server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from model_server import ModelServer


@dataclass(frozen=True)
class Wire:
    """A model name that leads to a protocol, and the variables that lead it to the server."""

    name: str
    model: str
    key: str
    base: str
    suffix: str = ""

    def variables(self, server: ModelServer, *, key: str = "sk-judge-0123456789") -> dict[str, str]:
        """Return the variables that make the model be asked at the server."""
        return {self.key: key, self.base: server.url + self.suffix}


WIRES: Mapping[str, Wire] = {
    wire.name: wire
    for wire in (
        Wire("anthropic", "anthropic/claude-scripted-1", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        Wire("chat", "openai/gpt-scripted-1", "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
        Wire("gemini", "gemini/gemini-scripted-1", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    )
}
