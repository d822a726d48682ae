"""A trajectory as a dialogue: what the user said, what the agent thought, said and did, and what came of it.

Events are written in the order in which they end; here each tool call stands where the agent began it, with its output.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Event, Json

_SPOKEN = ("agent_thought", "agent_message")
_TOLD = {
    "agent_timeout": "the agent was stopped: {reason}",
    "agent_error": "the agent answered with an error: {message}",
    "agent_crash": "the agent ended in the middle of a prompt: {detail}",
}
_PLACE = ("step", "scene", "role", "turn")


@dataclass(slots=True)
class Call:
    """A tool call of the agent."""

    id: str
    kind: str = "other"
    title: str = ""
    status: str = "pending"
    arguments: dict[str, Json] = field(default_factory=dict)
    output: str = ""
    began: float | None = None
    seconds: float | None = None
    is_described: bool = True
    """Whether the arguments are what the agent said of the call, since it did not tell them."""


@dataclass(slots=True)
class Passage:
    """What one side did until the other side, or something new, came: words first, then tool calls."""

    source: Literal["user", "agent", "system"]
    ts: float | None = None
    text: str = ""
    thought: str = ""
    calls: list[Call] = field(default_factory=list)
    is_program: bool = False
    """Whether no model is behind it: a task's own solution."""
    models: list[str] = field(default_factory=list)
    usage: dict[str, Json] | None = None
    """What the whole prompt used that ends here; the tokens of single calls of a model are not known."""
    place: dict[str, Json] = field(default_factory=dict)
    """Step, scene, role and turn, where there are several."""


def passages_of(events: Iterable[Event]) -> list[Passage]:
    """Return the dialogue that a trajectory tells."""
    reader = _Reader()
    for event in events:
        reader.take(event)
    return reader.passages


class _Reader:
    def __init__(self) -> None:
        self.passages: list[Passage] = []
        self._open: dict[str, Call] = {}
        self._spoken: tuple[object, object] = (None, None)
        """The kind of the words before, and whether they were a notice."""

    def take(self, event: Event) -> None:
        kind = event.get("type")
        before, self._spoken = self._spoken, (None, None)
        if kind in _SPOKEN:
            self._say(event, before)
        elif kind == "user_message":
            self._begin("user", event).text = _text(event.get("text"))
        elif kind == "tool_call_start":
            self._call(event)
        elif kind in ("tool_call", "tool_call_update"):
            _fill(self._open.get(_text(event.get("tool_call_id"))) or self._call(event), event)
        elif kind == "stop":
            self._stop(event)
        elif kind == "oracle":
            self._solution(event)
        elif isinstance(kind, str) and kind in _TOLD:
            self._begin("system", event).text = _TOLD[kind].format_map(_Words(event))

    def _say(self, event: Event, before: tuple[object, object]) -> None:
        text, kind = _text(event.get("text")), event["type"]
        self._spoken = (kind, bool(event.get("notice")))
        continues = bool(event.get("continues")) and before == self._spoken
        if event.get("notice"):
            passage = self.passages[-1] if continues else self._begin("system", event)
            passage.text += text
            return
        passage = (
            self.passages[-1] if self._goes_on(event) and not self.passages[-1].calls else self._begin("agent", event)
        )
        if kind == "agent_thought":
            if passage.text:  # a thought after words begins something new
                passage = self._begin("agent", event)
            passage.thought += text if continues or not passage.thought else f"\n\n{text}"
        else:
            passage.text += text if continues or not passage.text else f"\n\n{text}"

    def _call(self, event: Event) -> Call:
        passage = self.passages[-1] if self._goes_on(event) else self._begin("agent", event)
        call = Call(_text(event.get("tool_call_id")) or f"call-{len(passage.calls) + 1}")
        _fill(call, event)
        ts = event.get("ts")
        call.began = float(ts) if isinstance(ts, int | float) else None
        passage.calls.append(call)
        self._open[call.id] = call
        return call

    def _stop(self, event: Event) -> None:
        usage, models = event.get("usage"), event.get("models")
        self._open.clear()
        if not self._goes_on(event):
            return
        passage = self.passages[-1]
        passage.usage = usage if isinstance(usage, dict) else None
        passage.models = [name for name in models if isinstance(name, str)] if isinstance(models, list) else []

    def _solution(self, event: Event) -> None:
        passage = self._begin("agent", event)
        passage.is_program = True
        status = "completed" if event.get("return_code") == 0 else "failed"
        arguments: dict[str, Json] = {"command": event.get("command")}
        passage.calls = [Call("oracle", "execute", "solution", status, arguments, _text(event.get("stdout")))]

    def _goes_on(self, event: Event) -> bool:
        last = self.passages[-1] if self.passages else None
        return last is not None and last.source == "agent" and last.place == _place(event)

    def _begin(self, source: Literal["user", "agent", "system"], event: Event) -> Passage:
        ts = event.get("ts")
        passage = Passage(source, float(ts) if isinstance(ts, int | float) else None, place=_place(event))
        self.passages.append(passage)
        return passage


class _Words(dict[str, object]):
    def __init__(self, event: Event) -> None:
        super().__init__(event)

    def __missing__(self, key: str) -> str:
        return "unknown"


def _place(event: Event) -> dict[str, Json]:
    return {key: event[key] for key in _PLACE if event.get(key) is not None}


def _fill(call: Call, event: Event) -> None:
    """Take what an event tells of a call; what it leaves out stays.

    Some agents never tell the arguments: the title, and the files that a call is about, are all there is then.
    """
    call.kind = _text(event.get("kind")) or call.kind
    call.title = _text(event.get("title")) or call.title
    call.status = _text(event.get("status")) or call.status
    given = event.get("raw_input")
    if given:
        call.arguments = given if isinstance(given, dict) else {"input": given}
        call.is_described = False
    elif call.is_described:
        call.arguments |= _described(event)
    call.output = _output(event) or call.output
    seconds = event.get("duration_sec")
    call.seconds = float(seconds) if isinstance(seconds, int | float) else call.seconds


def _described(event: Event) -> dict[str, Json]:
    places = event.get("locations")
    paths = (
        [place["path"] for place in places if isinstance(place, dict) and "path" in place]
        if isinstance(places, list)
        else []
    )
    return {key: value for key, value in (("title", event.get("title")), ("paths", paths)) if value}


def _output(event: Event) -> str:
    content = event.get("content")
    parts = [_part(each) for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    text = "\n".join(filter(None, parts))
    raw = event.get("raw_output")
    return text or (raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False) if raw else "")


def _part(item: dict[str, Json]) -> str:
    if item.get("type") == "diff":
        path = _text(item.get("path"))
        old, new = (_text(item.get(key)).splitlines(keepends=True) for key in ("oldText", "newText"))
        return "".join(difflib.unified_diff(old, new, path, path))
    inner = item.get("content")
    if isinstance(inner, dict):
        if isinstance(inner.get("text"), str):
            return _text(inner["text"])
        return f"[{_text(inner.get('type')) or 'content'}]"
    return ""


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
