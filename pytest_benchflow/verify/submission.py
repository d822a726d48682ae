"""What a judge gets to see of an agent's work: files, a last message, a trajectory, each cut to size and made visible.

Everything here is written by an agent that may want to deceive: links are not followed, files without text only named,
and characters that nobody sees are shown as their numbers.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pytest_benchflow.core.text import one_line
from pytest_benchflow.core.types import Event, Json
from pytest_benchflow.verify.documents import UnreadableDocument, document_kind, document_text

MAX_FILES = 200
"""Shown; of the others only the number is told."""
_MAX_WALKED = 20_000
_MAX_BYTES = 50 << 20
_DOCUMENTS_SEC = 60.0
"""For all documents of a submission together."""
_LEAST_CHARS = 200
_SNIFFED = 8192
_EVENT_CHARS = 2_000
_SHOWN_NAMES = 5
#: Directories that hold what others made; they are looked into only where a pattern names them.
_FOREIGN = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "dist-info"})

#: Characters without a look of their own: controls, directions, joiners, tags, selectors, halves of pairs.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSEEN_RUN = re.compile(f"([{_UNSEEN}])\\1*")


def visible(text: str) -> tuple[str, int]:
    """Return the text with every character that nobody sees as `\\u{number}`, and how many there were."""
    count = 0

    def shown(match: re.Match[str]) -> str:
        nonlocal count
        n = len(match[0])
        count += n
        one = f"\\u{{{ord(match[1]):04X}}}"
        return one * n if n < 4 else f"{one}×{n}"

    return _UNSEEN_RUN.sub(shown, text.replace("\r\n", "\n")), count


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a submission, ready to be shown."""

    kind: str
    """file, final message or trajectory."""
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Submission:
    """What is shown to a judge, and what is not."""

    pieces: tuple[Piece, ...] = ()
    notes: tuple[str, ...] = ()
    """What was cut, left out or made visible; the judge and the reader of the result are told."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to judge."""
        return not self.pieces


@dataclass(frozen=True, slots=True)
class Work:
    """An agent's work on this machine: a copy of its files, and what it said and did."""

    directory: Path | None = None
    final_message: str | None = None
    events: Sequence[Event] = ()
    notes: tuple[str, ...] = ()
    """What could not be copied."""
    left_out: frozenset[str] = frozenset()
    """Files that are not the agent's."""

    def submission(
        self,
        patterns: Sequence[str] = (),
        *,
        max_chars: int,
        max_file_chars: int,
        final_message: bool = False,
        trajectory: bool = False,
    ) -> Submission:
        """Return what a judge sees of it: the files that match, all of them without patterns."""
        notes = [*self.notes]
        pieces = []
        if final_message:
            text, unseen = visible(self.final_message or "")
            cut = _cut(text, max_file_chars)
            notes += _told("the final message", len(text), len(cut), unseen)
            pieces.append(Piece("final message", "final message", cut or "(the agent said nothing)"))
        if trajectory:
            shown, note = render_trajectory(self.events, max_chars // 2)
            pieces.append(Piece("trajectory", "trajectory", shown or "(no events)"))
            notes += [note] if note else []
        left = max_chars - sum(len(piece.text) for piece in pieces)
        names = [] if self.directory is None else [*_walk(self.directory, patterns, self.left_out)]
        files, more = _files(self.directory or Path(), names, patterns, max(left, _LEAST_CHARS), max_file_chars)
        return Submission((*files, *pieces), (*notes, *more))


def _files(
    directory: Path, walked: Sequence[str], patterns: Sequence[str], max_chars: int, max_file_chars: int
) -> tuple[list[Piece], list[str]]:
    """Return the files to be shown and what has to be said of the others."""
    names = [name for name in walked if not patterns or any(matches(name, pattern) for pattern in patterns)]
    notes = [_no_match(pattern, walked) for pattern in patterns if not any(matches(name, pattern) for name in names)]
    if len(names) > MAX_FILES:
        notes.append(f"{len(names) - MAX_FILES} of {len(names)} files are not shown")
    readable: list[tuple[str, _Content]] = []
    opaque: list[str] = []
    deadline = time.monotonic() + _DOCUMENTS_SEC
    for name in names[:MAX_FILES]:
        try:
            readable.append((name, _read(directory / name, max_file_chars, deadline)))
        except _NotText as file:
            opaque.append(f"{_shown_name(name)} ({file})")
    if opaque:
        notes.append(f"not shown, since not text: {_listed(opaque)}")
    share = _fair_share([len(content.text) for _, content in readable], max_chars)
    pieces = []
    for name, (text, size, unseen) in readable:
        cut = _cut(text, min(share, max_file_chars), size)
        notes += _told(
            _shown_name(name), max(size, len(text)), len(cut), unseen, is_cut=cut != text or size > len(text)
        )
        pieces.append(Piece("file", _shown_name(name), cut))
    return pieces, notes


def _walk(directory: Path, patterns: Sequence[str], left_out: frozenset[str]) -> Iterator[str]:
    """Yield the names of regular files below a directory, in order; hidden ones only where a pattern names them."""
    named = {part for pattern in patterns for part in pattern.split("/")}
    count = 0

    def wanted(name: str) -> bool:
        return name in named or not (name.startswith(".") or name in _FOREIGN or name.endswith(".dist-info"))

    for root, folders, files in os.walk(directory):
        folders[:] = sorted(filter(wanted, folders))
        for name in sorted(filter(wanted, files)):
            path = os.path.join(root, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                count += 1
                if count > _MAX_WALKED:
                    return
                if (relative := os.path.relpath(path, directory)) not in left_out:
                    yield relative


def matches(name: str, pattern: str) -> bool:
    """Return whether a relative path is the one of a pattern, is below it, or fits its stars."""
    plain = pattern.removeprefix("./").rstrip("/")
    if name == plain or name.startswith(f"{plain}/"):
        return True
    return any(sign in plain for sign in "*?[") and _glob(plain).fullmatch(name) is not None


def _glob(pattern: str) -> re.Pattern[str]:
    """Return the expression of a glob: a star stays in its directory, two cross them."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]/]+\])", pattern)
    signs = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    classes = (f"[{'^' + part[2:-1] if part[1] == '!' else part[1:-1]}]" if part[:1] == "[" else None for part in parts)
    texts = (signs.get(part) or inside or re.escape(part) for part, inside in zip(parts, classes, strict=True))
    return re.compile("".join(texts), re.DOTALL)


def _no_match(pattern: str, names: Iterable[str]) -> str:
    """Say that a pattern fits nothing, and which file has a name like it: others match parts of names."""
    stem = pattern.rpartition("/")[2].lower()
    similar = next((name for name in names if stem and stem in name.lower()), None)
    hint = f"; {_shown_name(similar)} is there, but patterns are whole paths" if similar else ""
    return f"no file matches {pattern}{hint}"


class _NotText(Exception):
    """A file without text; the message says what it is instead."""


class _Content(NamedTuple):
    """The visible text of a file, how long it is in all, and how much of it nobody would see."""

    text: str
    size: int
    unseen: int


def _read(path: Path, max_chars: int, deadline: float) -> _Content:
    """Return what a file holds: the beginning and the end of a large one, and the text of a document."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _NotText(error.strerror or "cannot be read") from None
    with open(handle, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_BYTES:
            raise _NotText(f"{size} bytes")
        start = file.read(_SNIFFED)
        if (kind := document_kind(path.name, start)) is not None:
            return _document(file, kind, path.name, deadline - time.monotonic())
        encoding = _encoding(start)
        if encoding is None:
            raise _NotText(f"{size} bytes")
        head = start + file.read(max_chars * 4)
        rest = b""
        if size > len(head):
            file.seek(max(len(head), size - max_chars))
            rest = file.read(max_chars)
    text = head.decode(encoding, "replace")
    if rest:
        text += rest.decode(encoding, "replace")
    if text.count("\ufffd") > max(8, len(text) // 20):
        raise _NotText(f"{size} bytes")
    shown, unseen = visible(text)
    return _Content(shown, size, unseen)


def _document(file: BinaryIO, kind: str, name: str, timeout_sec: float) -> _Content:
    try:
        shown, unseen = visible(document_text(file, kind, _shown_name(name), timeout_sec=timeout_sec))
    except UnreadableDocument as error:
        raise _NotText(str(error)) from None
    return _Content(shown, len(shown), unseen)


def _encoding(start: bytes) -> str | None:
    """Return how a file is written, None if it is no text."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return None if b"\0" in start else "utf-8-sig"


def _fair_share(sizes: Sequence[int], budget: int) -> int:
    """Return how many characters each file may have, so that large ones do not push out small ones."""
    left, todo = budget, sorted(sizes)
    for n, size in enumerate(todo):
        share = left // (len(todo) - n)
        if size > share:
            return max(share, _LEAST_CHARS)
        left -= size
    return max(budget, _LEAST_CHARS)


def _cut(text: str, limit: int, size: int = 0) -> str:
    """Return a text within the limit: its beginning, and a third from its end; it may have been `size` long."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    gap = f"[… {max(size, len(text)) - limit} characters left out …]"
    return f"{text[: limit - tail]}\n{gap}\n{text[len(text) - tail :]}"


def _told(name: str, size: int, shown: int, unseen: int, *, is_cut: bool | None = None) -> list[str]:
    notes = []
    if shown < size if is_cut is None else is_cut:
        notes.append(f"{name} is cut: {shown} of about {size} characters are shown")
    if unseen:
        notes.append(f"{name} has {unseen} characters that cannot be seen, shown as \\u{{…}}")
    return notes


def _shown_name(name: str) -> str:
    return one_line(visible(name.replace("\n", "\\n"))[0], 200)


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN_NAMES} more" if len(items) > _SHOWN_NAMES else ""
    return f"{', '.join(items[:_SHOWN_NAMES])}{more}"


def render_trajectory(events: Sequence[Event], max_chars: int) -> tuple[str, str | None]:
    """Return the events as numbered pieces within a limit, the beginning and most of the end; and what is left out."""
    pieces = [f"[{n}] {text}" for n, event in enumerate(events, 1) if (text := _event(event))]
    sizes = [len(piece) + 1 for piece in pieces]
    if sum(sizes) <= max_chars:
        return "\n".join(pieces), None
    first = _fitting(sizes, max_chars // 4)
    last = _fitting(sizes[::-1], max_chars - max_chars // 4)
    n_left_out = len(pieces) - first - last
    gap = f"[… {n_left_out} events left out …]"
    note = f"the trajectory is cut: {n_left_out} of {len(pieces)} events are not shown"
    return "\n".join([*pieces[:first], gap, *pieces[len(pieces) - last :]]), note


def _fitting(sizes: Sequence[int], budget: int) -> int:
    total = 0
    for n, size in enumerate(sizes):
        total += size
        if total > budget:
            return n
    return len(sizes)


def _event(event: Mapping[str, Json]) -> str | None:
    """Return an event in words, None if it says nothing of the work."""
    match event.get("type"):
        case "tool_call":
            parts = [f"tool call: {_words(event.get('title'))} ({_words(event.get('status'))})"]
            result = event.get("raw_output") or event.get("content")
            parts += [f"input: {_words(event['raw_input'])}"] if event.get("raw_input") else []
            parts += [f"result: {_words(result)}"] if result else []
            return "\n".join(parts)
        case "user_message" | "agent_message" | "agent_thought" as kind if event.get("text"):
            return f"{kind.replace('_', ' ')}: {_words(event['text'])}"
        case "oracle":
            return f"solution: {_words(event.get('command'))}\n{_words(event.get('stdout'))}"
        case "agent_error" | "agent_crash" | "agent_timeout" as kind:
            said = event.get("message") or event.get("detail") or event.get("reason")
            return f"{kind.replace('_', ' ')}: {_words(said)}"
    return None


def _words(value: Json) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return _cut(visible(text)[0], _EVENT_CHARS)
