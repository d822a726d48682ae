"""Read TOML, and find the line of a key afterwards: the parser keeps no positions, the text does."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

import tomli

from .problems import Problem, TaskError
from .sources import Data, Path, names

if TYPE_CHECKING:
    from collections.abc import Iterator


class TomlSource:
    """A parsed `task.toml`."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.data = parse(file, text)
        self._text = text

    @cached_property
    def _lines(self) -> dict[Path, int]:
        return key_lines(self._text)

    def line(self, path: Path) -> int | None:
        """Return the line of the key at `path`, else of the nearest table around it."""
        return next((self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines), None)

    def key(self, path: Path) -> str | None:
        """Write `path` as a table header and a key: `[agent] timeout_sec`."""
        while path and isinstance(path[-1], int):
            path = path[:-1]
        if len(path) < 2:
            return str(path[0]) if path else None
        table = ".".join(names(path[:-1]))
        return f"[[{table}]] {path[-1]}" if isinstance(path[-2], int) else f"[{table}] {path[-1]}"

    def table(self, name: str) -> str:
        """Write the name of a table: `[agent]`."""
        return f"[{name}]"


def parse(file: str, text: str) -> Data:
    """Parse TOML, or raise TaskError with the line of the mistake."""
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        reason = f"is not valid TOML: {error.msg[:1].lower()}{error.msg[1:]}"
        raise TaskError([Problem(file, error.lineno, None, reason)]) from None
    except RecursionError:
        raise TaskError([Problem(file, None, None, "is nested too deeply")]) from None
    except ValueError as error:
        raise TaskError([Problem(file, None, None, f"is not valid TOML: {error}")]) from None


_TOKEN = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\''''
    r"""|\#[^\n]*|\n|[\[\]{}=.,]|[^\S\n]+|[^\s"'\#\[\]{}=.,]+|.""",
    re.DOTALL,
)


def key_lines(text: str) -> dict[Path, int]:
    """Map every table and key of a valid TOML text to its line; keys inside inline values are left out."""
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for line, tokens in _statements(text):
        if tokens[0] == "[":
            array = tokens[1:2] == ["["]
            parts = _key(tokens[2:-2] if array else tokens[1:-1])
            table = _resolve(parts[:-1], counts)
            table = (*table, parts[-1]) if parts else table
            if array:
                lines.setdefault(table, line)
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            lines.setdefault(table, line)
        elif "=" in tokens:
            path = table
            for part in _key(tokens[: tokens.index("=")]):
                path = (*path, part)
                lines.setdefault(path, line)
    return lines


def _statements(text: str) -> Iterator[tuple[int, list[str]]]:
    """Split into header and assignment lines; a value that spans lines stays with its key."""
    line, depth, start, tokens = 1, 0, 1, list[str]()
    for match in _TOKEN.finditer(text):
        piece = match.group()
        if piece == "\n" and depth <= 0:
            if tokens:
                yield start, tokens
            depth, tokens = 0, []
        elif not piece.isspace() and piece[0] != "#":
            start = start if tokens else line
            depth += (piece in "[{") - (piece in "]}")
            tokens.append(piece)
        line += piece.count("\n")
    if tokens:
        yield start, tokens


def _key(tokens: list[str]) -> list[str]:
    return [_unquoted(piece) for piece in tokens if piece != "."]


def _unquoted(token: str) -> str:
    if token[0] == "'":
        return token[1:-1]
    if token[0] == '"':
        return str(tomli.loads(f"k = {token}")["k"])
    return token


def _resolve(parts: list[str], counts: dict[Path, int]) -> Path:
    path: Path = ()
    for part in parts:
        path = (*path, part)
        if path in counts:
            path = (*path, counts[path])
    return path
