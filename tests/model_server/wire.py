"""What the four wire protocols have in common."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from model_server.conversation import Conversation, compact
from model_server.intents import ToolCall
from model_server.replies import Ending

Json = Mapping[str, object]
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one answer; `cached` are part of `input`."""

    input: int = 1234
    output: int = 56
    cached: int = 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says, before it is put into a protocol."""

    model: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    ending: Ending = "complete"

    @property
    def pieces(self) -> list[str]:
        """The text as it is streamed: word by word."""
        return [word for word in self.text.splitlines(keepends=True) for word in _split(word)]


class Wire(Protocol):
    """One protocol: how a request is read, and an answer or an error written."""

    @property
    def name(self) -> str:
        """What requests of this kind are called."""

    def owns(self, path: str) -> bool:
        """Tell whether a path asks a model for an answer in this protocol."""

    def read(self, path: str, body: Json) -> Conversation:
        """Return what the request holds."""

    def whole(self, answer: Answer) -> Json:
        """Return the answer in one piece."""

    def stream(self, answer: Answer) -> Iterator[str]:
        """Return the answer as server-sent events."""

    def error(self, status: int, message: str) -> Json:
        """Return an error as this provider words it."""


def fresh_id(prefix: str) -> str:
    """Return an id that nothing else has."""
    return f"{prefix}{next(_numbers):08d}"


def now() -> int:
    """Return the time as providers give it."""
    return int(time.time())


def event(data: Json, name: str | None = None) -> str:
    """Return one server-sent event."""
    return f"{f'event: {name}' + chr(10) if name else ''}data: {compact(data)}\n\n"


def arguments(value: object) -> str:
    """Return a call's arguments as the JSON text that models write."""
    return value if isinstance(value, str) else json.dumps(value)


def _split(line: str) -> list[str]:
    words = line.split(" ")
    return [word + " " for word in words[:-1]] + [words[-1]]
