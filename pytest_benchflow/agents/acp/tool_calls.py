"""Follow an agent's tool calls from the first word of them to their end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pytest_benchflow.agents.acp.types import as_list, as_object, as_text, at_path
from pytest_benchflow.agents.manifest import Quirks
from pytest_benchflow.core.types import Emit, Event, Json

_TERMINAL = ("completed", "failed", "cancelled")
#: Finished calls that are remembered, so that a late word on one is not taken for a new call.
_REMEMBERED = 1024
#: Calls that may be open at once; beyond that the oldest is written down as it is.
_MAX_OPEN = 256
#: Output that an agent sends piece by piece is kept up to this size.
_OUTPUT_CHARS = 1 << 20

_WORDS = {"kind": "kind", "title": "title", "status": "status"}
_VALUES = {"content": "content", "raw_input": "rawInput", "raw_output": "rawOutput", "locations": "locations"}


@dataclass(slots=True)
class _Call:
    quirks: Quirks
    began: float
    updated: float
    announced: bool = False
    """Whether the agent reported it, rather than only asked permission for it."""
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    fields: dict[str, Json] = field(default_factory=dict)
    output: list[str] = field(default_factory=list)
    output_kept: int = 0
    output_size: int = 0
    exit: dict[str, Json] = field(default_factory=dict)

    def take(self, update: dict[str, Json], *, only_new: bool = False) -> None:
        """Take what an update tells; an empty value takes nothing back, for some end their calls with empty content."""
        for key, value in _fields(update):
            if not (only_new and key in self.fields):
                self.fields[key] = value
        self._take_terminal(update)

    def _take_terminal(self, update: dict[str, Json]) -> None:
        """Take the output that some agents send beside the call, piece by piece."""
        for path in self.quirks.terminal_output:
            text = as_text(at_path(update, path))
            if text is not None:
                self.output_size += len(text)
                piece = text[: _OUTPUT_CHARS - self.output_kept]
                self.output_kept += len(piece)
                self.output.append(piece) if piece else None
        if exit_status := as_object(at_path(update, self.quirks.terminal_exit)):
            self.exit = {key: value for key, value in exit_status.items() if key in ("exit_code", "signal")}

    def event(self, name: str, now: float) -> Event:
        """Return all that is known as one event."""
        fields = self.fields
        event: Event = {
            "type": "tool_call",
            "tool_call_id": name,
            "kind": fields.get("kind", "other"),
            "title": fields.get("title", ""),
            "status": fields.get("status", "pending"),
            "content": [*as_list(fields.get("content")), *self._output()],
        }
        rest = {"raw_input": fields.get("raw_input"), "raw_output": fields.get("raw_output") or self.exit}
        event.update((key, value) for key, value in (*rest.items(), ("locations", fields.get("locations"))) if value)
        return event | {"started_at": self.started_at, "duration_sec": round(now - self.began, 3)}

    def _output(self) -> list[Json]:
        if not self.output:
            return []
        left_out = self.output_size - self.output_kept
        note = f"\n[... {left_out} characters left out ...]\n" if left_out else ""
        return [{"type": "content", "content": {"type": "text", "text": "".join(self.output) + note}}]


class ToolCalls:
    """The calls of one session; only those that are open take memory."""

    def __init__(self, emit: Emit, clock: Callable[[], float], quirks: Quirks) -> None:
        self._emit = emit
        self._quirks = quirks
        self._clock = clock
        self._open: dict[str, _Call] = {}
        self._finished: dict[str, int] = {}
        self._turn = 0
        self.count = 0
        """Calls of this turn."""

    def begin_turn(self) -> None:
        """Count from zero; from now on a call with an old id is a new call."""
        self._turn += 1
        self.count = 0

    @property
    def pending(self) -> list[str]:
        """Ids of the calls that have not ended."""
        return [name for name, call in self._open.items() if call.announced]

    @property
    def last_sign(self) -> float | None:
        """When a pending call last showed life, None if none is pending."""
        return max((call.updated for call in self._open.values()), default=None)

    def update(self, update: dict[str, Json], *, is_new: bool) -> None:
        """Take a `tool_call` or a `tool_call_update`, whichever comes first."""
        name = as_text(update.get("toolCallId")) or "unnamed"
        finished_in = self._finished.get(name)
        if finished_in is not None and (finished_in == self._turn or not is_new):
            self._late(name, update)
            return
        call = self._open.get(name) or self._add(name)
        if not call.announced:
            self._announce(name, call, update)
        call.take(update)
        call.updated = self._clock()
        if call.fields.get("status") in _TERMINAL:
            self._finish(name)

    def asked(self, request: dict[str, Json], *, allowed: bool) -> None:
        """Take the call that a permission request describes; some agents tell of it nowhere else."""
        described = as_object(request.get("toolCall"))
        name = as_text(described.get("toolCallId"))
        if name is None or name in self._finished:
            return
        # Some ask once for several calls, which they have announced under their own ids.
        stands_for_others = name not in self._open and bool(self.pending)
        call = self._open.get(name) or self._add(name)
        call.take(described, only_new=call.announced)
        call.updated = self._clock()
        if not (call.announced or stands_for_others or allowed):
            # Refused, and some agents will not speak of it again.
            self._announce(name, call, described)
            call.fields["status"] = "failed"
            self._finish(name)

    def end_turn(self, status: str | None = None) -> None:
        """Write down the calls that did not end, with `status` if they were stopped."""
        for name, call in [*self._open.items()]:
            if not call.announced:
                del self._open[name]
                continue
            if status is not None:
                call.fields["status"] = status
            self._finish(name)

    def _add(self, name: str) -> _Call:
        if len(self._open) >= _MAX_OPEN:
            self._finish(next(iter(self._open)))
        now = self._clock()
        call = self._open[name] = _Call(self._quirks, now, now)
        return call

    def _announce(self, name: str, call: _Call, update: dict[str, Json]) -> None:
        call.announced = True
        self.count += 1
        known = {key: value for key, value in _fields(update) if key in ("kind", "title")}
        self._emit({"type": "tool_call_start", "tool_call_id": name, **known})

    def _finish(self, name: str) -> None:
        call = self._open.pop(name)
        self._finished.pop(name, None)
        self._finished[name] = self._turn
        if len(self._finished) > _REMEMBERED:
            del self._finished[next(iter(self._finished))]
        if call.announced:
            self._emit(call.event(name, self._clock()))

    def _late(self, name: str, update: dict[str, Json]) -> None:
        """Keep what comes after the end, without counting the call twice."""
        more = dict(_fields(update))
        if more.keys() & _VALUES.keys():
            self._emit({"type": "tool_call_update", "tool_call_id": name, **more})


def _fields(update: dict[str, Json]) -> list[tuple[str, Json]]:
    """Return what an update tells of a call, in the words of the trajectory."""
    words = [(key, update.get(wire)) for key, wire in _WORDS.items()]
    texts: list[tuple[str, Json]] = [(key, word) for key, word in words if isinstance(word, str) and word]
    return texts + [(key, value) for key, wire in _VALUES.items() if (value := update.get(wire))]
