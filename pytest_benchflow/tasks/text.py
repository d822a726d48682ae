"""Read the small text files of a task, with a clear problem for everything that is not one."""

from __future__ import annotations

import os
import stat

from .problems import Problem, TaskError

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
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise _unreadable(path, "is a directory", "put a text file in its place")
    if not stat.S_ISREG(found.st_mode):
        raise _unreadable(path, "is not a regular file", "put a text file in its place")
    # Plain system calls: a file object would make room for the largest file allowed, ten thousand times.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        raw = b""
        while len(raw) <= MAX_BYTES and (more := os.read(handle, min(found.st_size, MAX_BYTES) + 1)):
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
