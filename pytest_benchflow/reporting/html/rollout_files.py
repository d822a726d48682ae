"""Read what a rollout has left on disk, as much of it as a page shows.

Parts of it come out of sandboxes: links are never followed, nothing is read without a bound, and what is no JSON is
left out, so that a page can be made of whatever is there.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_core import from_json

from pytest_benchflow.rollout import TRAJECTORY

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json

#: A text in an event that is longer is shortened in the pages; the trajectory on disk has all of it.
_LONGEST_TEXT = 16_000
_LONGEST_LINE = 64_000
_LONGEST_LIST = 500
_VERIFIER_BYTES = 64_000
_CONFIG_BYTES = 256_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Ends:
    """The start and the end of a file, and how many bytes between them are left out."""

    start: bytes
    end: bytes
    left_out: int


def read_ends(directory: Path, name: str, *, first: int, last: int) -> Ends | None:
    """Return the first and the last bytes of a regular file below a directory; None if it is not one, or is a link."""
    descriptor = _open_below(directory, name)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size <= first + last:
            return Ends(file.read(first + last), b"", 0)
        start = file.read(first)
        file.seek(size - last)
        return Ends(start, file.read(last), size - first - last)


def _open_below(directory: Path, name: str) -> int | None:
    *folders, last = name.split("/")
    try:
        inside = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                outer, inside = inside, os.open(folder, _DIRECTORY, dir_fd=inside)
                os.close(outer)
            descriptor = os.open(last, _FILE, dir_fd=inside)
        finally:
            os.close(inside)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def events_json(directory: Path, limit: int) -> tuple[bytes, str | None]:
    """Return a trajectory as a JSON array of at most about `limit` bytes, and a sentence if something is left out."""
    ends = read_ends(directory, TRAJECTORY, first=limit * 2 // 3, last=limit // 3)
    if ends is None:
        return b"[]", None
    lines = ends.start.split(b"\n")[:-1]  # what a kill cut short has no line end
    note = None
    if ends.left_out:
        lines += ends.end.split(b"\n")[1:-1]
        note = f"{ends.left_out / 1e6:.1f} MB in the middle are left out here; all is in {directory / TRAJECTORY}"
    if any(len(line) > _LONGEST_LINE for line in lines):
        lines = [_shortened(line) if len(line) > _LONGEST_LINE else line for line in lines]
    events = b"[" + b",".join(lines) + b"]"
    return events if _is_strict_json(events) else b"[" + b",".join(filter(None, map(_repaired, lines))) + b"]", note


def _is_strict_json(data: bytes) -> bool:
    try:
        from_json(data, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def _repaired(line: bytes) -> bytes | None:
    """Return a line as a browser can read it, which knows no NaN; None if it is not a JSON object at all."""
    try:
        event = json.loads(line, parse_constant=lambda name: None)
        return json.dumps(event).encode() if isinstance(event, dict) else None
    except (ValueError, RecursionError):
        return None


def _shortened(line: bytes) -> bytes:
    try:
        return json.dumps(_short(json.loads(line, parse_constant=lambda name: None))).encode()
    except (ValueError, RecursionError):
        return b'{"type": "unreadable_event"}'


def _short(value: Json) -> Json:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f"{value[:_LONGEST_TEXT]}\n[… {len(value) - _LONGEST_TEXT} characters left out …]"
    if isinstance(value, list):
        return [_short(each) for each in value[:_LONGEST_LIST]]
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items()}
    return value


def verifier_output(directory: Path) -> str | None:
    """Return the end of what the verifier printed, None if it printed nothing."""
    ends = read_ends(directory, "verifier/test-stdout.txt", first=0, last=_VERIFIER_BYTES)
    if ends is None:
        return None
    text = (ends.start + ends.end).decode("utf-8", "replace")
    return f"[… {ends.left_out} bytes left out …]\n{text}" if ends.left_out else text or None


def config_of(directory: Path) -> Json:
    """Return the configuration that the rollout ran with, None if it cannot be read."""
    ends = read_ends(directory, "config.json", first=_CONFIG_BYTES, last=0)
    if ends is None:
        return None
    try:
        config: Json = json.loads(ends.start, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return None
    return config
