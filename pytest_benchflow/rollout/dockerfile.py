"""Rewrite a Dockerfile for a run: another base image, and sources that come from elsewhere. Pure functions of text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FROM = re.compile(r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(\S+)(?:[ \t]+AS[ \t]+(\S+))?", re.IGNORECASE | re.MULTILINE)
_ESCAPE = re.compile(r"\A(?:#.*\n)*#\s*escape\s*=\s*`", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?[\"']?([A-Za-z_]\w*)[\"']?")
_COPY = re.compile(r"\s*(?:COPY|ADD)\s", re.IGNORECASE)
_FLAGS = re.compile(r"\s*(?:COPY|ADD)\s+((?:--\S+\s+|\\\s*\n\s*)*)", re.IGNORECASE)
#: What is not a path in the build context.
_ELSEWHERE = re.compile(r"https?://|git@|git://|ssh://|<<", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Instruction:
    line: int
    start: int
    end: int


def with_base(text: str, image: str) -> str:
    """Let the last stage stand on another image: directly, or through the stages that it is made from."""
    stages = list(_FROM.finditer(text))
    if not stages:
        return text
    by_alias = {stage[2].lower(): stage for stage in stages if stage[2]}
    chosen = stages[-1]
    for _ in stages:
        below = by_alias.get(chosen[1].lower())
        chosen = below if below is not None and below.start() < chosen.start() else chosen
    return text[: chosen.start(1)] + image + text[chosen.end(1) :]


def with_sources(text: str, place: Callable[[int, str], str | None]) -> str:
    """Rename sources of COPY and ADD: `place` gets line and source, and returns another path or None for the same."""
    for instruction in reversed(list(_copies(text))):
        body = text[instruction.start : instruction.end]
        text = text[: instruction.start] + _renamed(body, instruction.line, place) + text[instruction.end :]
    return text


def _renamed(body: str, line: int, place: Callable[[int, str], str | None]) -> str:
    match = _FLAGS.match(body)
    if match is None or "--from" in match[1].lower():
        return body
    head, rest = body[: match.end()], body[match.end() :]
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except ValueError:
            return body
        if len(words) < 2 or not all(isinstance(word, str) for word in words):
            return body
        return head + json.dumps([*(_place(word, line, place) for word in words[:-1]), words[-1]])
    spans = [span for span in re.finditer(r"\S+", rest) if span[0] not in ("\\", "`")]
    for span in reversed(spans[:-1]):
        rest = rest[: span.start()] + _place(span[0], line, place) + rest[span.end() :]
    return head + rest


def _place(source: str, line: int, place: Callable[[int, str], str | None]) -> str:
    if _ELSEWHERE.match(source) or "$" in source:
        return source
    return place(line, source) or source


def _copies(text: str) -> Iterator[_Instruction]:
    return (found for found in _instructions(text) if _COPY.match(text[found.start : found.end]))


def _instructions(text: str) -> Iterator[_Instruction]:
    """Yield every instruction with its continuation lines, without the bodies of here-documents."""
    escape = "`" if _ESCAPE.match(text) else "\\"
    offset = begin = line = 0
    waiting: list[str] = []
    continued = False
    for number, raw in enumerate(text.splitlines(keepends=True), 1):
        content = raw.strip()
        start, offset = offset, offset + len(raw)
        if waiting:
            waiting = waiting[1:] if content == waiting[0] else waiting
            continue
        if not content or content.startswith("#"):
            continue
        if not continued:
            begin, line = start, number
        continued = content.endswith(escape)
        if not continued:
            yield _Instruction(line, begin, start + len(raw.rstrip("\r\n")))
            waiting = _HEREDOC.findall(text[begin:offset])
