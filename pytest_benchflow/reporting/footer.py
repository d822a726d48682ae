"""A block of lines below the cursor of a terminal, which stays where the program that owns the terminal has left it.

The program goes on printing as if the block were not there, once it is erased; so nothing has to be redirected, the
cursor is never hidden, no mode is changed, and a kill at any moment leaves a terminal that works.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

_ERASE_BELOW = "\x1b[J"
_DOWN_WITHIN_COLUMN = "\x1bD"
_UP = "\x1b[{}A"
_SAVE, _RESTORE = "\x1b7", "\x1b8"


class Footer:
    """The block on the terminal that a descriptor leads to; the descriptor is its own to close."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_drawn = False

    @property
    def size(self) -> os.terminal_size:
        """Columns and rows of the terminal as they are now."""
        try:
            return os.get_terminal_size(self._descriptor)
        except OSError:
            return os.terminal_size((80, 24))

    def draw(self, lines: Sequence[str]) -> None:
        """Draw the block, or draw it anew."""
        if not lines:
            self.erase()
            return
        # Room is made in the column of the cursor first, so that what is saved is where it ends up after scrolling.
        room = _DOWN_WITHIN_COLUMN * len(lines) + _UP.format(len(lines))
        text = "".join(f"\r\n{line}\x1b[0m\x1b[K" for line in lines)
        self._write(f"{_ERASE_BELOW}{room}{_SAVE}{text}{_RESTORE}")
        self._is_drawn = True

    def erase(self) -> None:
        """Take the block away; idempotent."""
        if self._is_drawn:
            self._write(_ERASE_BELOW)
            self._is_drawn = False

    def close(self) -> None:
        """Erase it and close the descriptor; idempotent."""
        if self._descriptor >= 0:
            self.erase()
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, text: str) -> None:
        with suppress(OSError):  # a terminal that is gone ends no run
            data = text.encode("utf-8", "replace")
            while data:
                data = data[os.write(self._descriptor, data) :]
