"""Descriptors on their way into a sandbox: closed here once sent, all closed if sending fails."""

from __future__ import annotations

import os
from types import TracebackType


class Handover:
    """Makes pipes of which the program gets one end and the runner keeps the other."""

    def __init__(self) -> None:
        self._theirs: list[int] = []
        self._ours: list[int] = []

    @property
    def theirs(self) -> tuple[int, ...]:
        """The descriptors to send, in the order they were made."""
        return tuple(self._theirs)

    def to_program(self) -> int:
        """Return the writing end of a pipe that the program reads."""
        read, write = os.pipe()
        self._theirs.append(read)
        self._ours.append(write)
        return write

    def from_program(self) -> int:
        """Return the reading end of a pipe that the program writes."""
        read, write = os.pipe()
        self._theirs.append(write)
        self._ours.append(read)
        return read

    def content(self, data: bytes) -> None:
        """Let the program read `data`, which it finds as a file; nobody has to feed a pipe."""
        if not data:
            self._theirs.append(os.open(os.devnull, os.O_RDONLY))
            return
        with open(os.memfd_create("bf-stdin", os.MFD_CLOEXEC), "wb") as file:
            file.write(data)
            file.flush()
            self._theirs.append(os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY))

    def __enter__(self) -> Handover:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self._theirs if kind is None else (*self._theirs, *self._ours):
            os.close(fd)
