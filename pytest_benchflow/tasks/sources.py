"""A task file as plain data that still knows on which line each key stands."""

from __future__ import annotations

from typing import Protocol

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
