"""Read a Dockerfile into instructions: comments, continuations, flags and the two argument forms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pytest_benchflow.errors import BuildError, UnsupportedError
from pytest_benchflow.hints import did_you_mean

from . import heredoc
from .heredoc import Heredoc, HeredocError

#: Instructions that change nothing for commands run later.
INERT = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"})
KEYWORDS = INERT | {"ADD", "ARG", "COPY", "ENV", "FROM", "ONBUILD", "RUN", "SHELL", "USER", "WORKDIR"}
USE_DOCKER = "use --bf-sandbox docker"
_DIRECTIVE = re.compile(r"#\s*([A-Za-z]+)\s*=\s*(\S+)\s*$")
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(\S*))?(?:\s+|$)")
_FLAGGED = frozenset({"ADD", "COPY", "FROM", "HEALTHCHECK", "RUN"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, not interpreted yet."""

    line: int
    keyword: str
    text: str
    """Its arguments, continuation lines joined, flags taken off."""
    flags: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] | None = None
    """The arguments of the JSON form; None in the shell form."""
    heredocs: tuple[Heredoc, ...] = ()


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """All instructions of a file, and the character that escapes in it."""

    name: str
    """How messages call the file, for example `environment/Dockerfile`."""
    instructions: tuple[Instruction, ...]
    escape: str = "\\"

    def error(self, line: int, message: str) -> BuildError:
        """Return an error that points at a line."""
        return BuildError(f"{self.name}:{line}: {message}")

    def unsupported(self, line: int, message: str) -> UnsupportedError:
        """Return an error for what only an image build can do."""
        return UnsupportedError(f"{self.name}:{line}: {message}", advice=USE_DOCKER)


def parse(text: str, name: str = "Dockerfile") -> Dockerfile:
    """Parse a Dockerfile; every failure is a BuildError or UnsupportedError with its line."""
    # Not splitlines: it takes form feeds and the like for line ends.
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n").split("\n")
    file = Dockerfile(name, (), _escape_character(lines))
    found = tuple(_instruction(file, *item) for item in _joined(file, lines))
    if not any(item.keyword == "FROM" for item in found):
        raise file.error(len(lines), "no FROM instruction")
    first = next(item for item in found if item.keyword != "ARG")
    if first.keyword != "FROM":
        raise file.error(first.line, f"{first.keyword} stands before FROM; begin with FROM")
    return Dockerfile(name, found, file.escape)


def _escape_character(lines: list[str]) -> str:
    """Find the `# escape=` directive; directives end at the first line that is none."""
    for line in lines:
        match = _DIRECTIVE.match(line.strip())
        if match is None:
            break
        if match[1].lower() == "escape" and match[2] in ("`", "\\"):
            return match[2]
    return "\\"


def _joined(file: Dockerfile, lines: list[str]) -> Iterator[tuple[int, str, tuple[Heredoc, ...]]]:
    """Yield each instruction's first line number, its text without comments and continuations, and its documents."""
    start, parts, escape = 0, list[str](), file.escape
    numbered = iter(enumerate(lines, 1))
    for number, line in numbered:
        if line.lstrip().startswith("#") or (not line.strip()):
            # Both may stand inside an instruction that goes on below.
            continue
        start = start if parts else number
        stripped = line.rstrip()
        if stripped.endswith(escape) and not stripped.endswith(escape * 2):
            parts.append(stripped[:-1])
            continue
        text = "".join([*parts, line]).strip()
        try:
            yield start, text, heredoc.read(text, numbered)
        except HeredocError as error:
            raise file.error(start, str(error)) from None
        parts = []
    if parts:
        yield start, "".join(parts).strip(), ()


def _instruction(file: Dockerfile, line: int, joined: str, heredocs: tuple[Heredoc, ...]) -> Instruction:
    keyword, rest = [*joined.split(maxsplit=1), "", ""][:2]
    keyword = keyword.upper()
    if keyword not in KEYWORDS:
        raise file.error(line, f"unknown instruction {keyword!r}; {did_you_mean(keyword, KEYWORDS)}")
    flags: dict[str, str] = {}
    while keyword in _FLAGGED and (match := _FLAG.match(rest)):
        flags[match[1]] = match[2] or ""
        rest = rest[match.end() :]
    if not rest:
        raise file.error(line, f"{keyword} has no arguments")
    return Instruction(line, keyword, rest, flags, _json_words(rest), heredocs)


def _json_words(text: str) -> tuple[str, ...] | None:
    """Read the JSON form; anything that is no list of strings is the shell form, as in Docker."""
    if not text.startswith("["):
        return None
    try:
        # What follows the list is ignored.
        words, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return tuple(words)
    return None
