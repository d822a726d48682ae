"""The rollout's directory on disk: every file is written whole or not at all."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from pytest_benchflow.events import Event, Json

#: Agents may send half a character; escaped like this it is still valid JSON.
_ESCAPE = "backslashreplace"


def write_json(path: Path, data: object) -> None:
    """Replace a file by JSON atomically: a reader, or a kill at any moment, sees the old file or the new one."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", errors=_ESCAPE)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Trajectory:
    """Append events as they happen, one JSON object per line, so that a kill loses at most the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self._seq = 0

    def append(self, event: Event, **where: Json) -> None:
        """Stamp an event with its time and number and write it through."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8", errors=_ESCAPE)
        self._seq += 1
        line = {"seq": self._seq, "ts": round(time.time(), 3), **where, **event}
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None
