"""The rollout's directory on disk: every file is written whole or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.core.types import Event, Json

TRAJECTORY = "trajectory/acp_trajectory.jsonl"

#: Agents may send half a character; escaped like this it is still valid JSON.
_ESCAPE = "backslashreplace"


def write_json(path: Path, data: object) -> None:
    """Replace a file by JSON atomically: a reader, or a kill at any moment, sees the old file or the new one."""
    write_text(path, as_json(data))


def as_json(data: object) -> str:
    """Return data as the files have it."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically."""
    write_atomically(path, text, errors=_ESCAPE)


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Trajectory:
    """Append events as they happen, one JSON object per line, so that a kill loses at most the last one."""

    def __init__(self, path: Path, redact: Callable[[str], str] = str) -> None:
        self._path = path
        self._redact = redact
        self._file: IO[str] | None = None
        self.n_events = 0

    def append(self, event: Event, **where: Json) -> None:
        """Stamp an event with its time and number and write it through."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8", errors=_ESCAPE)
        self.n_events += 1
        line = {"seq": self.n_events, "ts": round(time.time(), 3), **where, **event}
        self._file.write(self._redact(json.dumps(line, ensure_ascii=False)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_trajectory(rollout_dir: Path, since: int = 0) -> list[Event]:
    """Return the events of a rollout after the first `since`; a line cut short by a kill is left out."""
    try:
        with (rollout_dir / TRAJECTORY).open(encoding="utf-8", errors="replace") as file:
            lines = file.readlines()[since:]
    except FileNotFoundError:
        return []
    events = []
    for line in lines:
        with suppress(ValueError):
            events.append(json.loads(line))
    return events
