"""What the server remembers of a request, for tests to look at."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

from model_server.conversation import Conversation
from model_server.replies import Reply

KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in, and what the model answered."""

    time: float
    method: str
    path: str
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: Mapping[str, object]
    wire: str | None = None
    """anthropic, responses, chat or gemini; None for anything that asks no model."""
    conversation: Conversation | None = None
    prompt: str | None = None
    """The prompt it is about: the newest that has a script, else the newest."""
    reply: Reply | None = None

    @property
    def model(self) -> str | None:
        """The model that was asked."""
        return self.conversation.model if self.conversation else None

    @property
    def key(self) -> str | None:
        """The API key it came with."""
        return api_key(self.path, self.headers)

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that were offered."""
        return tuple(tool.name for tool in self.conversation.tools) if self.conversation else ()

    @property
    def prompts(self) -> tuple[str, ...]:
        """What users had said, oldest first."""
        return self.conversation.prompts if self.conversation else ()

    @property
    def is_work(self) -> bool:
        """Whether the agent was at work: it offered tools, as it does not for titles and summaries."""
        return bool(self.tools)

    def saw(self, text: str) -> bool:
        """Tell whether the model got to know a text: as prompt, as its own words or as a tool's result."""
        return self.conversation is not None and any(text in turn.text for turn in self.conversation.turns)


def api_key(path: str, headers: Mapping[str, str]) -> str | None:
    """Return the key of a request, wherever its provider has it."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token:
        return token
    in_header = next((headers[name] for name in KEY_HEADERS if headers.get(name)), None)
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
    return in_header or next(iter(query.get("key", [])), None)
