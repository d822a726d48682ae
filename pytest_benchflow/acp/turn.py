"""Turn the updates of a session into the events of its trajectory, and into what is known of the current turn."""

from __future__ import annotations

from collections.abc import Callable

from pytest_benchflow.acp.choices import Choices
from pytest_benchflow.acp.evidence import Evidence, complaint_in, is_broken
from pytest_benchflow.acp.messages import Messages
from pytest_benchflow.acp.shapes import as_list, as_object, as_text
from pytest_benchflow.acp.tool_calls import ToolCalls
from pytest_benchflow.acp.usage import Meter
from pytest_benchflow.events import Emit, Event, Json

_SPOKEN = {"agent_message_chunk": "agent_message", "agent_thought_chunk": "agent_thought"}


class Turns:
    """Follows one session; what comes between two prompts belongs to the first of them."""

    def __init__(self, emit: Emit, clock: Callable[[], float]) -> None:
        self._emit = emit
        self._messages = Messages(emit)
        self.calls = ToolCalls(self._write, clock)
        self.meter = Meter()
        self.choices = Choices()
        self.evidence = Evidence()
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
        self.evidence = Evidence()
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
        elif (complaint := complaint_in(update)) is not None:
            self.evidence.complaint = complaint
        elif (broken := is_broken(update)) is not None:
            self.evidence.is_broken = broken
        if "cost" in update or "_meta" in update:
            self.meter.update(update)

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
