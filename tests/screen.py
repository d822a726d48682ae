"""A terminal's screen as a person would see it, from what a program has sent: as much of one as our programs use."""

from __future__ import annotations

import codecs
import re

_TOKEN = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])|\x1b([78D])|([\r\n])|([^\x1b\r\n]+)|\x1b.?")
_UNFINISHED = re.compile(r"\x1b(?:\[[\d;?]*)?$")


class Screen:
    """Rows of text, a cursor, and lines that have scrolled off the top."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.lines = [""] * rows
        self.history: list[str] = []
        self.row = self.column = 0
        self._saved = (0, 0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> Screen:
        """Show what a program sends."""
        text = self._rest + self._decoder.decode(data)
        whole = _UNFINISHED.search(text)
        self._rest = text[whole.start() :] if whole else ""
        for match in _TOKEN.finditer(text.removesuffix(self._rest) if self._rest else text):
            parameter, command, single, end, printed = match.groups()
            if printed:
                self._print(printed)
            elif end == "\r":
                self.column = 0
            elif end == "\n" or single == "D":
                self._down()
            elif single == "7":
                self._saved = self.row, self.column
            elif single == "8":
                self.row, self.column = self._saved
            elif command == "A":
                self.row = max(0, self.row - int(parameter or 1))
            elif command in ("J", "K") and parameter in ("", "0"):
                self.lines[self.row] = self.lines[self.row][: self.column]
                if command == "J":
                    self.lines[self.row + 1 :] = [""] * (self.rows - self.row - 1)
            else:
                assert command in ("m", "K", "J"), match.group()
        return self

    @property
    def text(self) -> str:
        """What is on the screen now."""
        return "\n".join(line.rstrip() for line in self.lines).rstrip()

    @property
    def everything(self) -> str:
        """The same with what has scrolled away."""
        return "\n".join([*self.history, self.text])

    def _print(self, text: str) -> None:
        for character in text:
            if self.column >= self.columns:
                self.column = 0
                self._down()
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
            self.column += 1

    def _down(self) -> None:
        if self.row + 1 < self.rows:
            self.row += 1
        else:
            self.history.append(self.lines.pop(0).rstrip())
            self.lines.append("")
