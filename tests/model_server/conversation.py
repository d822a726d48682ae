"""What a request to a model holds, whatever protocol it came in."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing that was said or done: words, a tool call (kind assistant) or a tool's result."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the agent offers."""

    name: str
    schema: Mapping[str, object] | None = None
    """Of its arguments; a tool that takes free text has none."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Everything the model gets to know."""

    model: str
    turns: tuple[Turn, ...] = ()
    tools: tuple[Tool, ...] = ()
    stream: bool = False
    schema: Mapping[str, object] | None = None
    """What the answer has to look like, when it has to be JSON."""

    @property
    def prompts(self) -> tuple[str, ...]:
        """What users said, oldest first."""
        return tuple(turn.text for turn in self.turns if turn.kind == "user")

    def answers_after(self, index: int) -> int:
        """Count the model's own answers after the turn at `index`; calls made together are one."""
        kinds = [turn.kind for turn in self.turns[index:] if turn.kind != "system"]
        return sum(one == "assistant" != before for before, one in itertools.pairwise(kinds))


def words(content: object) -> str:
    """Return the text of a message: a string, a part, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        text = content.get("text", content.get("content"))
        return "" if text is None else words(text)
    if isinstance(content, Sequence):
        return "\n".join(filter(None, map(words, content)))
    return ""


def compact(value: object) -> str:
    """Return JSON on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def objects(value: object) -> list[Mapping[str, object]]:
    """Return the objects of a JSON list, and nothing for anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def mapping(value: object) -> Mapping[str, object]:
    """Return a JSON object, empty for anything else."""
    return value if isinstance(value, Mapping) else {}
