"""Read configuration files as plain data that still know on which line each key stands; here TOML."""

from __future__ import annotations

import os
import re
import stat
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from pytest_benchflow.configfile.problems import Problem, TaskError

if TYPE_CHECKING:
    from collections.abc import Iterator


#: A place in the data: table names, keys and list indices from the root.
Path = tuple[str | int, ...]
Data = dict[str, object]


class Source(Protocol):
    """What the readers of task.toml and of front matter both give."""

    @property
    def file(self) -> str:
        """The file as it appears in messages."""

    @property
    def data(self) -> Data:
        """The parsed content."""

    def line(self, path: Path) -> int | None:
        """Return the line of the key at `path`, else of the nearest table around it."""

    def key(self, path: Path) -> str | None:
        """Write `path` the way the file spells it."""

    def table(self, name: str) -> str:
        """Write the name of a top-level table the way the file does."""


def names(path: Path) -> list[str]:
    """Return a path without its list indices."""
    return [part for part in path if isinstance(part, str)]


MAX_BYTES = 1_000_000


def read_text(path: str) -> str:
    """Return the text of a UTF-8 file, or raise TaskError with the one reason why it has none."""
    try:
        raw = _read(path)
    except FileNotFoundError:
        raise _unreadable(path, "is missing", "create it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _unreadable(path, f"cannot be read ({reason})", "check its permissions") from None
    return decode(path, raw)


def _read(path: str) -> bytes:
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise _unreadable(path, "is a directory", "put a text file in its place")
    if not stat.S_ISREG(status.st_mode):
        raise _unreadable(path, "is not a regular file", "put a text file in its place")
    # Plain system calls: a file object would make room for the largest file allowed, ten thousand times.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        raw = b""
        while len(raw) <= MAX_BYTES and (more := os.read(handle, min(status.st_size, MAX_BYTES) + 1)):
            raw += more
        return raw
    finally:
        os.close(handle)


def decode(path: str, raw: bytes) -> str:
    """Return bytes of a task file as text, a byte order mark removed."""
    if len(raw) > MAX_BYTES:
        raise _unreadable(path, "is larger than 1 MB", "keep data in environment/, this file is for settings and text")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        reason = f"holds the byte 0x{raw[error.start]:02x}, which is not UTF-8"
        raise _unreadable(path, reason, "save the file as UTF-8", line) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _unreadable(path, "holds a NUL byte", "save the file as plain text", line)
    return text


def _unreadable(path: str, reason: str, fix: str, line: int | None = None) -> TaskError:
    return TaskError([Problem(path, line, None, reason, fix)])


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
    import tomli  # late: a collection that finds everything in its index reads no TOML

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
        import tomli

        return str(tomli.loads(f"k = {token}")["k"])
    return token


def _resolve(parts: list[str], counts: dict[Path, int]) -> Path:
    path: Path = ()
    for part in parts:
        path = (*path, part)
        if path in counts:
            path = (*path, counts[path])
    return path
