"""Merge the pieces of what an agent says and thinks into events, without keeping more than a little of it."""

from __future__ import annotations

import asyncio

from pytest_benchflow.events import Emit, Event

#: A kill of the runner loses at most this much of what the agent said.
_FLUSH_CHARS = 16_000
_FLUSH_SEC = 5.0
#: Of the last message this many characters are kept for the result.
_LAST_CHARS = 16_000


class Messages:
    """Pieces of one kind become one event, until something else comes between.

    A long message is written in parts: an event with `continues` goes on where the one before of its type stopped.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._key: tuple[str, str | None, bool] | None = None
        self._parts: list[str] = []
        self._size = 0
        self._continues = False
        self._timer: asyncio.TimerHandle | None = None
        self._last = ""

    @property
    def last(self) -> str | None:
        """The last thing the agent said in this turn, its end if it is long."""
        if self._key is not None and self._key[0] == "agent_message" and not self._key[2]:
            return (self._last + "".join(self._parts))[-_LAST_CHARS:] or None
        return self._last or None

    def begin_turn(self) -> None:
        """Forget what was said."""
        self.interrupt()
        self._last = ""

    def is_start(self, kind: str, message_id: str | None) -> bool:
        """Whether a piece would begin a message."""
        return self._key != (kind, message_id, False)

    def add(self, kind: str, text: str, message_id: str | None, *, is_notice: bool = False) -> None:
        """Take one piece."""
        key = (kind, message_id, is_notice)
        if key != self._key or is_notice:
            self.interrupt()
            self._key = key
            if kind == "agent_message" and not is_notice:
                self._last = ""
        self._parts.append(text)
        self._size += len(text)
        if self._size >= _FLUSH_CHARS:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SEC, self.flush)

    def flush(self) -> None:
        """Write what there is; more of the same continues it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._parts or self._key is None:
            return
        kind, _, is_notice = self._key
        text = "".join(self._parts)
        self._parts, self._size = [], 0
        event: Event = {"type": kind, "text": text}
        if self._continues:
            event["continues"] = True
        if is_notice:
            event["notice"] = True
        elif kind == "agent_message":
            self._last = (self._last + text)[-_LAST_CHARS:]
        self._continues = True
        self._emit(event)

    def interrupt(self) -> None:
        """Write what there is; whatever comes next is something new."""
        self.flush()
        self._key = None
        self._continues = False
