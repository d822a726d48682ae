"""Here-documents of a Dockerfile: files or scripts written into it, as in `RUN <<EOF` and `COPY <<EOF /path`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_KEYWORD = re.compile(r"(?:RUN|COPY|ADD)\s", re.IGNORECASE)
_MARK = re.compile(r"(?:^|(?<=\s))\d*<<(-?)([\"']?)([A-Za-z_][\w.]*)\2(?=\s|$|[;&|)>])")


class HeredocError(ValueError):
    """A here-document that cannot be read."""


@dataclass(frozen=True, slots=True)
class Heredoc:
    """One here-document."""

    name: str
    content: str
    literal: bool = False
    """A quoted name: variables stay as they are."""


def read(instruction: str, lines: Iterator[tuple[int, str]]) -> tuple[Heredoc, ...]:
    """Take the here-documents that an instruction announces from the lines that follow it."""
    if _KEYWORD.match(instruction) is None:
        return ()
    return tuple(_read_one(match, lines) for match in _marks(instruction))


def without_marks(text: str) -> str:
    """Return the arguments of an instruction but for its here-documents."""
    for match in reversed(_marks(text)):
        text = text[: match.start()] + text[match.end() :]
    return text.strip()


def _marks(text: str) -> list[re.Match[str]]:
    return [match for match in _MARK.finditer(text) if not _is_quoted(text[: match.start()])]


def _is_quoted(before: str) -> bool:
    quote, escaped = "", False
    for char in before:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
    return bool(quote)


def _read_one(match: re.Match[str], lines: Iterator[tuple[int, str]]) -> Heredoc:
    strips, quote, name = match.groups()
    content: list[str] = []
    for _, raw in lines:
        line = raw.lstrip("\t") if strips else raw
        if line == name:
            return Heredoc(name, "".join(content), literal=bool(quote))
        content.append(f"{line}\n")
    raise HeredocError(f"the here-document {name} never ends; close it with a line that holds only {name}")
