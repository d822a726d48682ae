"""Read a Dockerfile into instructions, and rewrite one for a run. Pure functions of text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pytest_benchflow.core.errors import BuildError, UnsupportedError
from pytest_benchflow.core.text import did_you_mean

_KEYWORD = re.compile(r"(?:RUN|COPY|ADD)\s", re.IGNORECASE)
_MARK = re.compile(r"(?:^|(?<=\s))\d*<<(-?)([\"']?)([A-Za-z_][\w.]*)\2(?=\s|$|[;&|)>])")


class HeredocError(ValueError):
    """A here-document that cannot be read."""


@dataclass(frozen=True, slots=True)
class Heredoc:
    """One here-document."""

    name: str
    content: str
    literal: bool = False
    """A quoted name: variables stay as they are."""


def read(instruction: str, lines: Iterator[tuple[int, str]]) -> tuple[Heredoc, ...]:
    """Take the here-documents that an instruction announces from the lines that follow it."""
    if _KEYWORD.match(instruction) is None:
        return ()
    return tuple(_read_one(match, lines) for match in _marks(instruction))


def without_marks(text: str) -> str:
    """Return the arguments of an instruction but for its here-documents."""
    for match in reversed(_marks(text)):
        text = text[: match.start()] + text[match.end() :]
    return text.strip()


def _marks(text: str) -> list[re.Match[str]]:
    return [match for match in _MARK.finditer(text) if not _is_quoted(text[: match.start()])]


def _is_quoted(before: str) -> bool:
    quote, escaped = "", False
    for char in before:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
    return bool(quote)


def _read_one(match: re.Match[str], lines: Iterator[tuple[int, str]]) -> Heredoc:
    strips, quote, name = match.groups()
    content: list[str] = []
    for _, raw in lines:
        line = raw.lstrip("\t") if strips else raw
        if line == name:
            return Heredoc(name, "".join(content), literal=bool(quote))
        content.append(f"{line}\n")
    raise HeredocError(f"the here-document {name} never ends; close it with a line that holds only {name}")


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
            yield start, text, read(text, numbered)
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


_FROM = re.compile(r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(\S+)(?:[ \t]+AS[ \t]+(\S+))?", re.IGNORECASE | re.MULTILINE)
_ESCAPE = re.compile(r"\A(?:#.*\n)*#\s*escape\s*=\s*`", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?[\"']?([A-Za-z_]\w*)[\"']?")
_COPY = re.compile(r"\s*(?:COPY|ADD)\s", re.IGNORECASE)
_FLAGS = re.compile(r"\s*(?:COPY|ADD)\s+((?:--\S+\s+|\\\s*\n\s*)*)", re.IGNORECASE)
#: What is not a path in the build context.
_ELSEWHERE = re.compile(r"https?://|git@|git://|ssh://|<<", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Instruction:
    line: int
    start: int
    end: int


def with_base(text: str, image: str) -> str:
    """Let the last stage stand on another image: directly, or through the stages that it is made from."""
    stages = list(_FROM.finditer(text))
    if not stages:
        return text
    by_alias = {stage[2].lower(): stage for stage in stages if stage[2]}
    chosen = stages[-1]
    for _ in stages:
        below = by_alias.get(chosen[1].lower())
        chosen = below if below is not None and below.start() < chosen.start() else chosen
    return text[: chosen.start(1)] + image + text[chosen.end(1) :]


def with_sources(text: str, place: Callable[[int, str], str | None]) -> str:
    """Rename sources of COPY and ADD: `place` gets line and source, and returns another path or None for the same."""
    for instruction in reversed(list(_copies(text))):
        body = text[instruction.start : instruction.end]
        text = text[: instruction.start] + _renamed(body, instruction.line, place) + text[instruction.end :]
    return text


def _renamed(body: str, line: int, place: Callable[[int, str], str | None]) -> str:
    match = _FLAGS.match(body)
    if match is None or "--from" in match[1].lower():
        return body
    head, rest = body[: match.end()], body[match.end() :]
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except ValueError:
            return body
        if len(words) < 2 or not all(isinstance(word, str) for word in words):
            return body
        return head + json.dumps([*(_place(word, line, place) for word in words[:-1]), words[-1]])
    spans = [span for span in re.finditer(r"\S+", rest) if span[0] not in ("\\", "`")]
    for span in reversed(spans[:-1]):
        rest = rest[: span.start()] + _place(span[0], line, place) + rest[span.end() :]
    return head + rest


def _place(source: str, line: int, place: Callable[[int, str], str | None]) -> str:
    if _ELSEWHERE.match(source) or "$" in source:
        return source
    return place(line, source) or source


def _copies(text: str) -> Iterator[_Instruction]:
    return (found for found in _instructions(text) if _COPY.match(text[found.start : found.end]))


def _instructions(text: str) -> Iterator[_Instruction]:
    """Yield every instruction with its continuation lines, without the bodies of here-documents."""
    escape = "`" if _ESCAPE.match(text) else "\\"
    offset = begin = line = 0
    waiting: list[str] = []
    continued = False
    for number, raw in enumerate(text.splitlines(keepends=True), 1):
        content = raw.strip()
        start, offset = offset, offset + len(raw)
        if waiting:
            waiting = waiting[1:] if content == waiting[0] else waiting
            continue
        if not content or content.startswith("#"):
            continue
        if not continued:
            begin, line = start, number
        continued = content.endswith(escape)
        if not continued:
            yield _Instruction(line, begin, start + len(raw.rstrip("\r\n")))
            waiting = _HEREDOC.findall(text[begin:offset])
