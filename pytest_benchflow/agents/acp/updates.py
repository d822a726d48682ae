"""Turn the updates of a session into the events of its trajectory, and into what is known of the current turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pytest_benchflow.agents.acp.choices import Choices
from pytest_benchflow.agents.acp.evidence import Evidence, complaint_in, is_broken
from pytest_benchflow.agents.acp.tool_calls import ToolCalls
from pytest_benchflow.agents.acp.types import as_list, as_object, as_text, at_path
from pytest_benchflow.agents.acp.usage import Meter
from pytest_benchflow.agents.manifest import Quirks
from pytest_benchflow.core.types import Emit, Event, Json

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
        """Return whether a piece would begin a message."""
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


_SPOKEN = {"agent_message_chunk": "agent_message", "agent_thought_chunk": "agent_thought"}


class Turns:
    """Follows one session; what comes between two prompts belongs to the first of them."""

    def __init__(self, emit: Emit, clock: Callable[[], float], quirks: Quirks) -> None:
        self._emit = emit
        self._quirks = quirks
        self._messages = Messages(emit)
        self.calls = ToolCalls(self._write, clock, quirks)
        self.meter = Meter(quirks)
        self.choices = Choices(quirks.reported_model)
        self.evidence = Evidence(quirks=quirks, clock=clock)
        self._clock = clock
        self.models: dict[str, None] = {}
        """The models that answered in this turn, as far as updates tell."""
        self._prompted = False

    @property
    def message(self) -> str | None:
        """The last thing the agent said in this turn."""
        return self._messages.last

    def begin(self, prompt: str) -> None:
        """Start a turn."""
        self.end()
        self._messages.begin_turn()
        self.calls.begin_turn()
        self.meter.begin_turn()
        self.evidence = Evidence(quirks=self._quirks, clock=self._clock)
        self.models = {}
        self._prompted = True
        self._write({"type": "user_message", "text": prompt})

    def end(self, status: str | None = None) -> None:
        """Write down everything that is still open, with `status` for tool calls that were stopped."""
        self._messages.interrupt()
        self.calls.end_turn(status)

    def update(self, update: dict[str, Json]) -> None:
        """Take one update; unknown kinds leave at most a trace in what is known."""
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk" or kind == "agent_thought_chunk":
            self._spoken(_SPOKEN[kind], update)
        elif kind == "tool_call" or kind == "tool_call_update":
            self._messages.interrupt()
            before = self.calls.count
            self.calls.update(update, is_new=kind == "tool_call")
            if self.calls.count > before:
                self.evidence.saw_tool_call()
        elif kind == "plan":
            self._write({"type": "plan", "entries": as_list(update.get("entries"))})
        elif kind in ("config_option_update", "current_mode_update"):
            self.choices.take(update)
        elif (complaint := complaint_in(update, self._quirks)) is not None:
            self.evidence.report_failure(complaint)
        elif (broken := is_broken(update, self._quirks)) is not None:
            self.evidence.is_broken = broken
        if "cost" in update or "_meta" in update:
            self.meter.update(update)
        self._see_models(update)

    def notice(self, params: dict[str, Json]) -> None:
        """Take a notification of the agent's own, which is not an update."""
        if (complaint := complaint_in(params, self._quirks)) is not None:
            self.evidence.report_failure(complaint)
        self._see_models(params)

    def _see_models(self, message: dict[str, Json]) -> None:
        names = (as_text(at_path(message, path)) for path in self._quirks.update_models)
        self.models |= {name: None for name in names if name}

    def asked(self, request: dict[str, Json], option: str | None, *, allowed: bool) -> None:
        """Take a permission request and its answer."""
        described = as_object(request.get("toolCall"))
        event: Event = {"type": "permission", "tool_call_id": described.get("toolCallId")}
        self._write(event | {"title": described.get("title"), "option": option})
        before = self.calls.count
        self.calls.asked(request, allowed=allowed)
        if self.calls.count > before:
            self.evidence.saw_tool_call()
        self.evidence.said = True

    def _spoken(self, event_type: str, update: dict[str, Json]) -> None:
        content = update.get("content")
        message_id = as_text(update.get("messageId"))
        for block in content if isinstance(content, list) else [content]:
            text = block if isinstance(block, str) else as_object(block).get("text")
            if isinstance(text, str):
                if text:
                    is_start = self._messages.is_start(event_type, message_id)
                    # What comes before the first prompt answers nothing.
                    is_notice = not self._prompted or self.evidence.hear(text, is_start=is_start)
                    self._messages.add(event_type, text, message_id, is_notice=is_notice)
            elif block:
                self.evidence.said = True
                self._write({"type": event_type, "text": "", "content": block})

    def _write(self, event: Event) -> None:
        self._messages.interrupt()
        self._emit(event)
