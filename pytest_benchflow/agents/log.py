"""What an agent prints beside the protocol, on disk: without secrets, and never more than fits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from pytest_benchflow.core.capture import Tail, omission
from pytest_benchflow.core.secrets import Redactor, StreamRedactor

_HEAD_BYTES = 1 << 20
_TAIL_BYTES = 64 << 10


def log_name(agent: str) -> str:
    """Return the name of an agent's log file."""
    return re.sub("[^A-Za-z0-9.]+", "_", agent).strip("_")[:80] + ".txt"


class AgentLog:
    """Appends to a file: the first megabyte, and of what follows the last part when it is closed."""

    def __init__(self, path: Path, secrets: Iterable[str] = (), *, head: int = _HEAD_BYTES, tail: int = _TAIL_BYTES):
        self._path = path
        self._redactor = StreamRedactor(Redactor(secrets))
        self._room = head
        self._tail = Tail(tail)
        self._file: BinaryIO | None = None
        self._closed = False

    def write(self, data: bytes) -> None:
        """Add what the agent printed; a secret that comes in pieces is found too."""
        if not self._closed:
            self._store(self._redactor.feed(data))

    def close(self) -> None:
        """Write what is held back; where nothing was, leave a file whose place no other can take; idempotent."""
        if self._closed:
            return
        self._store(self._redactor.flush())
        self._open()
        self._closed = True
        rest = self._tail.content()
        if self._tail.dropped:
            self._append(omission(self._tail.dropped).encode())
        self._append(rest)
        if self._file is not None:
            self._file.close()

    def _store(self, data: bytes) -> None:
        now, later = data[: self._room], data[self._room :]
        self._room -= len(now)
        self._append(now)
        self._tail.add(later)

    def _append(self, data: bytes) -> None:
        if data:
            file = self._open()
            file.write(data)
            file.flush()

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), "ab")
        return self._file
