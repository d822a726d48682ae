"""The patterns of a .dockerignore file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

#: Some of these characters, or with ^ any but these.
_CLASS = re.compile(r"\[\^?\w[\w.,+@#-]*\]", re.ASCII)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """Decides what is left out of a build context; the last matching rule wins, `!` takes back in."""

    rules: tuple[tuple[re.Pattern[str], bool], ...] = ()

    @classmethod
    def read(cls, path: Path) -> IgnoreRules:
        """Read a .dockerignore; a missing one ignores nothing."""
        try:
            lines = path.read_text(errors="replace").splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return cls()
        rules = []
        for line in map(str.strip, lines):
            if line and not line.startswith("#"):
                pattern = line.removeprefix("!").strip().strip("/").removeprefix("./")
                rules.append((_translate(pattern), not line.startswith("!")))
        return cls(tuple(rules))

    def hides(self, name: str) -> bool:
        """Say whether a path relative to the context is left out, itself or by a parent."""
        hidden = False
        for pattern, ignores in self.rules:
            if pattern.match(name):
                hidden = ignores
        return hidden


def _translate(pattern: str) -> re.Pattern[str]:
    """Turn a pattern into an expression that also matches everything below what it names."""
    out, i = "", 0
    while i < len(pattern):
        if pattern.startswith("**/", i):
            out, i = out + "(?:.*/)?", i + 3
        elif pattern.startswith("**", i):
            out, i = out + ".*", i + 2
        elif pattern[i] == "*":
            out, i = out + "[^/]*", i + 1
        elif pattern[i] == "?":
            out, i = out + "[^/]", i + 1
        elif match := _CLASS.match(pattern, i):
            out, i = out + match[0], match.end()
        else:
            i += pattern[i] == "\\" and i + 1 < len(pattern)
            out, i = out + re.escape(pattern[i]), i + 1
    try:
        return re.compile(f"{out}(?:/.*)?$", re.DOTALL)
    except re.error:  # a range that runs backwards
        return re.compile(re.escape(pattern))
