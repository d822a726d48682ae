"""Names and labels of a task, in plain functions that need no model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")


def is_package_name(value: str) -> bool:
    """Say whether a name has the form organisation/name."""
    return _PACKAGE.fullmatch(value) is not None and ".." not in value


def word(value: object) -> str | None:
    """Return a metadata value as a word, None if it is none."""
    if isinstance(value, str):
        return value.strip() or None
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def tags_of(metadata: Mapping[str, object], keywords: Iterable[str] = ()) -> tuple[str, ...]:
    """Return tags and keywords of a task, each once, in order."""
    listed = metadata.get("tags")
    tags = [word(tag) for tag in listed] if isinstance(listed, list | tuple) else [word(listed)]
    return tuple(dict.fromkeys(tag for tag in (*tags, *keywords) if tag))
