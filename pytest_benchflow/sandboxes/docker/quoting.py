"""Text as bash reads it back, whatever bytes it holds."""

from __future__ import annotations

import re

#: Variables that bash keeps to itself.
_READ_ONLY = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quote(text: str | bytes) -> str:
    """Return one word on one line of ASCII that bash takes for `text`; NUL bytes cannot be in it."""
    data = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    return "$'" + "".join(map(_ESCAPED.__getitem__, data)) + "'"


def can_export(name: str) -> bool:
    """Say whether bash can give a variable of this name to a program."""
    return _NAME.fullmatch(name) is not None and name not in _READ_ONLY


_ESCAPED = [chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\{byte:03o}" for byte in range(256)]
