"""Whether an agent went looking for what is hidden from it, by what its own tool calls say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_benchflow.core.text import one_line
from pytest_benchflow.core.types import Event, Json
from pytest_benchflow.verify.integrity import Finding

#: Places that hold nothing while an agent works, and the usual name of hidden tests.
_HIDDEN = ("/tests", "/verifier", "/solution", "/oracle", "/logs/verifier", "test_outputs.py")
_PLACE = re.compile(
    r"(?:^|(?<=[\s'\"=(<>|;&,:\[]))(/(?:tests|verifier|solution|oracle|logs/verifier)(?:/[^\s'\"|;&)<>\]]*)?)"
    r"(?=[\s'\"|;&)<>,\]]|$)|\b(test_outputs\.py)\b"
)
_COMMANDS = ("command", "cmd", "commands", "script", "bash_command")
_PATHS = (
    "path", "paths", "file", "file_path", "filePath", "filename", "absolute_path", "dir_path", "directory", "pattern",
    "glob", "include", "cwd"
)  # fmt: skip
_CALLS = frozenset({"tool_call", "tool_call_update"})
_MAX_CHARS = 20_000
_SHOWN = 3


def hidden_files_sought(events: Iterable[Event], told: str, workdir: str) -> Finding | None:
    """Return the finding that tool calls named hidden places; those that the task speaks of are no secret."""
    hidden = [place for place in _HIDDEN if place not in told and not f"{workdir}/".startswith(f"{place}/")]
    calls: dict[str, None] = {}
    paths: dict[str, None] = {}
    for event in events:
        for text in _texts(event) if event.get("type") in _CALLS else ():
            found = [named for named in _named(text) if any(_is_in(named, place) for place in hidden)]
            if found:
                calls[one_line(text, 100)] = None
                paths |= dict.fromkeys(one_line(named) for named in found)
    if not calls:
        return None
    shown = "; ".join([*calls][:_SHOWN]) + (f"; and {len(calls) - _SHOWN} more" if len(calls) > _SHOWN else "")
    message = f"the agent looked for what is hidden from it: {shown}"
    return Finding(kind="tests_sought", message=message, paths=[*paths][:20])


def _named(text: str) -> Iterator[str]:
    for match in _PLACE.finditer(text):
        yield match[1] or match[2]


def _is_in(named: str, place: str) -> bool:
    return named == place or named.startswith(f"{place}/")


def _texts(event: Mapping[str, Json]) -> Iterator[str]:
    """Yield what a tool call was to run and where it looked; what it wrote may speak of anything."""
    given = event.get("raw_input")
    if isinstance(given, str):
        yield _without_documents(given)
    elif isinstance(given, Mapping):
        for key in _COMMANDS:
            yield from (_without_documents(text) for text in _strings(given.get(key)))
        for key in _PATHS:
            yield from _strings(given.get(key))
    elif event.get("kind") in ("execute", "read", "search"):
        yield from _strings(event.get("title"))
    locations = event.get("locations")
    for location in locations if isinstance(locations, list) else ():
        if isinstance(location, Mapping):
            yield from _strings(location.get("path"))


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:_MAX_CHARS]
    elif isinstance(value, Sequence):  # a command as its words
        yield " ".join(word for word in value if isinstance(word, str))[:_MAX_CHARS]


def _without_documents(command: str) -> str:
    """Return a command without its here-documents."""
    return command.partition("<<")[0]
