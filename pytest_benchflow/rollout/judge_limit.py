"""How many questions to judges are open at a time, in all processes of a run together."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

_LOOK_SEC = 0.05


class JudgeLimit:
    """Entered for each question; lets so many in, and has others wait for their turn.

    Processes that share a directory take turns by locked files in it, which end with the process that holds them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._here = asyncio.Semaphore(most)
        self._shared: Path | None = None
        self._locks: list[int] = []

    def share(self, directory: Path) -> None:
        """Count together with other processes that were given the same directory."""
        self._shared = directory

    async def __aenter__(self) -> Self:
        await self._here.acquire()
        lock: int | None = -1
        try:
            while self._shared is not None and (lock := self._lock(self._shared)) is None:  # noqa: ASYNC110 - no process tells
                await asyncio.sleep(_LOOK_SEC)
        except BaseException:
            self._here.release()
            raise
        self._locks.append(-1 if lock is None else lock)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if (lock := self._locks.pop()) >= 0:
            os.close(lock)
        self._here.release()

    def _lock(self, directory: Path) -> int | None:
        """Return a locked file, None if all are taken; -1 where files cannot be locked."""
        try:
            directory.mkdir(exist_ok=True)
            for number in range(self._most):
                lock = os.open(directory / f"judge-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                else:
                    return lock
        except OSError:
            return -1
        return None
