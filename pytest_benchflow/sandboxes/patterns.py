"""Patterns of file names as Docker reads them: those of COPY, and those of a .dockerignore file."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

_CHARACTER = r"(\\.|[^\\\]-])"
_RANGE = re.compile(rf"{_CHARACTER}(?:-{_CHARACTER})?", re.DOTALL)
#: Some of these characters, or with ^ any but these.
_CLASS = re.compile(rf"\[(\^?)((?:{_RANGE.pattern})+)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """Decides what is left out of a build context; the last matching rule wins, `!` takes back in."""

    rules: tuple[tuple[re.Pattern[str], bool], ...] = ()

    @classmethod
    def read(cls, path: Path) -> IgnoreRules:
        """Read a .dockerignore; a missing one ignores nothing."""
        try:
            text = path.read_text("utf-8-sig", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return cls()
        rules = []
        for line in (line.strip() for line in text.split("\n") if not line.startswith("#")):
            if pattern := line.removeprefix("!").strip():
                pattern = posixpath.normpath(pattern).lstrip("/")
                # A pattern also means everything below what it names.
                rules.append((_compile(pattern, "(?:/.*)?"), not line.startswith("!")))
        return cls(tuple(rules))

    def hides(self, name: str) -> bool:
        """Say whether a path relative to the context is left out, itself or by a parent."""
        hidden = False
        for pattern, ignores in self.rules:
            if pattern.fullmatch(name):
                hidden = ignores
        return hidden


def is_pattern(text: str) -> bool:
    """Say whether a source of COPY may name several files."""
    return any(char in text for char in "*?[")


def matches(name: str, pattern: str) -> bool:
    """Say whether the name of a file, without directories, fits a pattern."""
    return _compile(pattern.replace("**", "*")).fullmatch(name) is not None


def _compile(pattern: str, rest: str = "") -> re.Pattern[str]:
    out, i = "", 0
    while i < len(pattern):
        if pattern.startswith("**/", i):
            out, i = out + "(?:.*/)?", i + 3
        elif pattern.startswith("**", i):
            out, i = out + ".*", i + 2
        elif pattern[i] == "*":
            out, i = out + "[^/]*", i + 1
        elif pattern[i] == "?":
            out, i = out + "[^/]", i + 1
        elif match := _CLASS.match(pattern, i):
            out, i = out + _class(match), match.end()
        else:
            i += pattern[i] == "\\" and i + 1 < len(pattern)
            out, i = out + re.escape(pattern[i]), i + 1
    try:
        return re.compile(out + rest, re.DOTALL)
    except re.error:  # a range that runs backwards
        return re.compile(re.escape(pattern))


def _class(match: re.Match[str]) -> str:
    ranges = (
        f"{re.escape(low[-1])}{'-' + re.escape(high[-1]) if high else ''}" for low, high in _RANGE.findall(match[2])
    )
    return f"[{match[1]}{''.join(ranges)}]"
