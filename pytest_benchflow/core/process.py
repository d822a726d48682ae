"""Keep forked copies of this process away from the lines that sandboxes live on.

A sandbox ends when the line to its runner does. A copy of the runner, as `multiprocessing` makes them, has that line
too and would keep the sandboxes of a killed runner alive.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Line(Protocol):
    """Something with a descriptor, which is negative once it is closed."""

    def fileno(self) -> int:
        """Return the descriptor."""


_lines: WeakSet[Line] = WeakSet()


def keep_from_forks(line: Line) -> None:
    """Cut a line in every copy of this process that is forked from now on."""
    _lines.add(line)


def cut() -> None:
    """Let every line end at nothing; its number stays taken, for whoever will close it."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for line in _lines:
        if (descriptor := _descriptor(line)) >= 0:
            os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _descriptor(line: Line) -> int:
    try:
        return line.fileno()
    except ValueError:  # how a file says that it is closed
        return -1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=cut)
