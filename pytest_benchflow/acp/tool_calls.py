"""Follow an agent's tool calls from the first word of them to their end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pytest_benchflow.acp.shapes import as_list, as_object, as_text
from pytest_benchflow.events import Emit, Event, Json

_TERMINAL = frozenset({"completed", "failed", "cancelled"})
#: Finished calls that are remembered, so that a late word on one is not taken for a new call.
_REMEMBERED = 1024
#: Output that an agent sends piece by piece is kept up to this size: its beginning and its end.
_OUTPUT_CHARS = 1 << 20

_FIELDS = {
    "kind": "kind",
    "title": "title",
    "status": "status",
    "content": "content",
    "raw_input": "rawInput",
    "raw_output": "rawOutput",
    "locations": "locations",
}


@dataclass(slots=True)
class _Call:
    began: float
    started_at: str
    updated: float
    told: dict[str, Json] = field(default_factory=dict)
    output: list[str] = field(default_factory=list)
    output_size: int = 0
    exit: dict[str, Json] | None = None
    announced: bool = True
    """Whether the agent reported it, rather than only asked permission for it."""


class ToolCalls:
    """The calls of one session; only those that are open take memory."""

    def __init__(self, emit: Emit, clock: Callable[[], float]) -> None:
        self._emit = emit
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
        call = self._open.get(name)
        if call is None or not call.announced:
            call = self._announce(name, call, update)
        self._merge(call, update)
        if call.told.get("status") in _TERMINAL:
            self._finish(name)

    def asked(self, request: dict[str, Json], *, allowed: bool) -> None:
        """Take the call that a permission request describes; some agents tell of it nowhere else."""
        described = as_object(request.get("toolCall"))
        name = as_text(described.get("toolCallId"))
        if name is None or name in self._finished:
            return
        stands_for_others = bool(self.pending) and name not in self._open
        call = self._open.get(name)
        if call is None:
            call = self._open[name] = self._new(announced=False)
        self._merge(call, described)
        if call.announced or stands_for_others or allowed:
            return
        # Refused, and the agent will not speak of it again.
        self._announce(name, call, described)
        call.told["status"] = "failed"
        self._finish(name)

    def end_turn(self, status: str | None = None) -> None:
        """Write down the calls that did not end, with `status` if they were stopped."""
        for name, call in [*self._open.items()]:
            if not call.announced:
                del self._open[name]
                continue
            if status is not None:
                call.told["status"] = status
            self._finish(name)

    def _new(self, *, announced: bool) -> _Call:
        now = self._clock()
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        return _Call(now, started, now, announced=announced)

    def _announce(self, name: str, call: _Call | None, update: dict[str, Json]) -> _Call:
        if call is None:
            call = self._open[name] = self._new(announced=True)
        call.announced = True
        self.count += 1
        start: Event = {"type": "tool_call_start", "tool_call_id": name}
        self._emit(
            start | {key: update[wire] for key, wire in _FIELDS.items() if key in ("kind", "title") and wire in update}
        )
        return call

    def _merge(self, call: _Call, update: dict[str, Json]) -> None:
        call.updated = self._clock()
        for key, wire in _FIELDS.items():
            value = update.get(wire)
            # An empty value takes nothing back: gemini ends its calls with empty content.
            if value is not None and (value not in ([], {}, "") or key not in call.told):
                call.told[key] = value
        meta = update.get("_meta")
        if isinstance(meta, dict):
            self._terminal(call, meta)

    def _terminal(self, call: _Call, meta: dict[str, Json]) -> None:
        """Take output that codex and pi send beside the call."""
        for key in ("terminal_output", "terminal_output_delta"):
            text = as_text(as_object(meta.get(key)).get("data"))
            if text and call.output_size < _OUTPUT_CHARS:
                call.output.append(text)
                call.output_size += len(text)
        if "terminal_exit" in meta:
            call.exit = {k: v for k, v in as_object(meta["terminal_exit"]).items() if k in ("exit_code", "signal")}

    def _finish(self, name: str) -> None:
        call = self._open.pop(name)
        self._finished.pop(name, None)
        self._finished[name] = self._turn
        if len(self._finished) > _REMEMBERED:
            del self._finished[next(iter(self._finished))]
        self._emit(_event(name, call, self._clock() - call.began))

    def _late(self, name: str, update: dict[str, Json]) -> None:
        """Keep what comes after the end, without counting the call twice."""
        more = {key: update[wire] for key, wire in _FIELDS.items() if update.get(wire) not in (None, [], {}, "")}
        if more.keys() - {"status", "title", "kind"}:
            self._emit({"type": "tool_call_update", "tool_call_id": name, **more})


def _event(name: str, call: _Call, duration: float) -> Event:
    told = call.told
    event: Event = {
        "type": "tool_call",
        "tool_call_id": name,
        "kind": told.get("kind") or "other",
        "title": told.get("title") or "",
        "status": told.get("status") or "pending",
        "content": _content(told.get("content"), call),
    }
    raw_output = told.get("raw_output")
    if raw_output is None and call.exit:
        raw_output = call.exit
    for key, value in (
        ("raw_input", told.get("raw_input")),
        ("raw_output", raw_output),
        ("locations", told.get("locations")),
    ):
        if value not in (None, [], {}, ""):
            event[key] = value
    event["started_at"] = call.started_at
    event["duration_sec"] = round(duration, 3)
    return event


def _content(content: Json, call: _Call) -> list[Json]:
    blocks = [*as_list(content)]
    if call.output:
        blocks.append({"type": "content", "content": {"type": "text", "text": "".join(call.output)}})
    return blocks
