"""A program of this machine at a terminal that a test types on and looks at."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

ANSWER_SEC = 30.0
_START = "import os, sys; os.login_tty(0); os.execvp(sys.argv[1], sys.argv[1:])"


class OnTerminal:
    """Runs a program as the leader of its session; killed at the end of the block if it has not ended."""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, size: tuple[int, int] = (33, 99)
    ) -> None:
        self.keyboard, self.screen = os.openpty()
        termios.tcsetwinsize(self.keyboard, size)
        self.before = termios.tcgetattr(self.screen)
        words = [sys.executable, "-c", _START, *argv]
        self.process = subprocess.Popen(words, stdin=self.screen, env={**os.environ, **(env or {})})
        self.seen = b""

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.keyboard, text.encode())

    def expect(self, text: str) -> None:
        """Wait until something is on the screen, and forget what came before it."""
        deadline = time.monotonic() + ANSWER_SEC
        while text.encode() not in self.seen:
            ready, _, _ = select.select([self.keyboard], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in {self.seen!r}"
            self.seen += os.read(self.keyboard, 65536)
        self.seen = self.seen.partition(text.encode())[2]

    def resize(self, rows: int, columns: int) -> None:
        """Drag the corner of the window."""
        termios.tcsetwinsize(self.keyboard, (rows, columns))

    def wait(self) -> int:
        """Return the program's status once it has ended."""
        return self.process.wait(ANSWER_SEC)

    @property
    def is_as_before(self) -> bool:
        """Whether the terminal works as it did before the program."""
        return termios.tcgetattr(self.screen) == self.before

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self.keyboard)
        self.keyboard = -1

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(ANSWER_SEC)
        for fd in (self.keyboard, self.screen):
            if fd >= 0:
                os.close(fd)
