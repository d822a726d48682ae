"""Which answer comes next: a function of the conversation alone, so any number of sessions may run at once."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from model_server.conversation import Conversation
from model_server.directives import parse_directives
from model_server.replies import DONE, Reply, Trouble

Answerer = Callable[[Conversation], Reply]
"""Works a reply out from what the model got to know."""


@dataclass(frozen=True, slots=True)
class Script:
    """The model's answers to one prompt, in order; when they are used up it says that it is done.

    A script belongs to a conversation if everything it asks for holds; the newest prompt that a script belongs to is
    the one it plays for.
    """

    replies: tuple[Reply | Answerer, ...]
    prompt: str | re.Pattern[str] = ""
    """What the prompt contains."""
    key: str | None = None
    """The API key the request came with."""
    model: str | None = None
    """The model that was asked."""
    seen: str | None = None
    """What the conversation holds before the prompt, as proof that the context was kept."""
    unseen: str | None = None
    """What it must not hold, as proof that the context is gone."""

    def plays_for(self, prompt: str, before: str, *, model: str, key: str | None) -> bool:
        """Tell whether this is the script for a prompt, given all that was said before it."""
        return (
            re.search(re.escape(self.prompt) if isinstance(self.prompt, str) else self.prompt, prompt) is not None
            and self.key in (None, key)
            and self.model in (None, model)
            and (self.seen is None or self.seen in before)
            and (self.unseen is None or self.unseen not in before)
        )


@dataclass(frozen=True, slots=True)
class Cue:
    """Where a conversation stands in its script."""

    script: Script
    prompt: str
    step: int
    """How many answers the model has given to this prompt."""


class Player:
    """Play scripts; it remembers only how often trouble that is limited has happened."""

    def __init__(self) -> None:
        self._happened: Counter[tuple[str, str | None, int]] = Counter()
        self._lock = threading.Lock()

    def reply(self, cue: Cue | None, conversation: Conversation, key: str | None) -> Reply:
        """Return what the model answers; calls beside the work, which offer no tools, use nothing up."""
        if cue is None:
            return DONE
        answers = cue.step
        for index, entry in enumerate(cue.script.replies):
            reply = entry(conversation) if callable(entry) else entry
            if not isinstance(reply, Trouble):
                if answers == 0:
                    return reply
                answers -= 1
            elif answers == 0 and self._happens((cue.prompt, key, index), reply, spend=bool(conversation.tools)):
                return reply
        return DONE

    def _happens(self, where: tuple[str, str | None, int], trouble: Trouble, *, spend: bool) -> bool:
        if trouble.times is None:
            return True
        with self._lock:
            self._happened[where] += spend
            return spend and self._happened[where] <= trouble.times


def find_cue(conversation: Conversation, scripts: Sequence[Script], key: str | None) -> Cue | None:
    """Return the script for the newest prompt that has one; a prompt may bring its own, line by line."""
    turns = conversation.turns
    for index in reversed([number for number, turn in enumerate(turns) if turn.kind == "user"]):
        prompt = turns[index].text
        before = "\n".join(turn.text for turn in turns[:index])
        script = _first(scripts, prompt, before, conversation.model, key) or _own(prompt)
        if script is not None:
            return Cue(script, prompt, conversation.answers_after(index))
    return None


def _first(scripts: Iterable[Script], prompt: str, before: str, model: str, key: str | None) -> Script | None:
    return next((one for one in scripts if one.plays_for(prompt, before, model=model, key=key)), None)


def _own(prompt: str) -> Script | None:
    replies = parse_directives(prompt)
    return Script(replies) if replies else None
