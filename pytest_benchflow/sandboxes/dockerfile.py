"""Read a Dockerfile: `scan` finds its instructions, `parse` checks them, the rest asks and rewrites single ones.

Pure functions of text. `scan` accepts whatever it is given: an engine builds, and reports on, what `parse` refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pytest_benchflow.core.errors import BuildError, UnsupportedError
from pytest_benchflow.core.text import did_you_mean

#: Instructions that change nothing for commands run later.
INERT = frozenset({"CMD", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"})
KEYWORDS = INERT | {
    "ADD",
    "ARG",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "FROM",
    "HEALTHCHECK",
    "ONBUILD",
    "RUN",
    "SHELL",
    "USER",
    "WORKDIR",
}
USE_DOCKER = "use --bf-sandbox docker"
_WITH_HEREDOCS = frozenset({"ADD", "COPY", "RUN"})
_WITH_FLAGS = _WITH_HEREDOCS | {"FROM", "HEALTHCHECK"}
_DIRECTIVE = re.compile(r"#\s*([A-Za-z]+)\s*=\s*(\S+)\s*$")
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(\S*))?(?:\s+|$)")
_HEREDOC_MARK = re.compile(r"(?:^|(?<=\s))\d*<<(-?)[ \t]*([\"']?)([A-Za-z_][\w.]*)\2(?=\s|$|[;&|)>])")


@dataclass(frozen=True, slots=True)
class Heredoc:
    """One here-document."""

    name: str
    content: str
    literal: bool = False
    """A quoted name: variables stay as they are."""
    is_closed: bool = True
    """Whether a line with its name ends it; otherwise it lasts to the end of the file."""


@dataclass(frozen=True, slots=True)
class RawInstruction:
    """One instruction as the file has it, not checked."""

    line: int
    start: int
    """Where its first line begins in the text of the file."""
    end: int
    """Where its last line ends, before any here-document."""
    text: str
    """All of it in one line: continuation lines joined, comments between them left out."""
    heredocs: tuple[Heredoc, ...] = ()

    @property
    def keyword(self) -> str:
        """Its first word, in capitals; empty if there is none."""
        return self.text.split(maxsplit=1)[0].upper() if self.text else ""

    def arguments(self) -> tuple[dict[str, str], str]:
        """Return its flags, and what follows them."""
        rest = self.text[len(self.keyword) :].lstrip()
        flags: dict[str, str] = {}
        while self.keyword in _WITH_FLAGS and (match := _FLAG.match(rest)):
            # One that comes again keeps all its values.
            flags[match[1]] = f"{flags.get(match[1], '')} {match[2] or ''}".lstrip()
            rest = rest[match.end() :]
        return flags, rest


def scan(text: str) -> list[RawInstruction]:
    """Return every instruction of a Dockerfile, whatever it says."""
    escape = escape_character(text)
    instructions: list[RawInstruction] = []
    parts: list[str] = []
    line = start = end = 0
    lines = _numbered_lines(text)
    for number, offset, content in lines:
        if not content.strip() or content.lstrip().startswith("#"):
            # Both may stand between the lines of one instruction.
            continue
        if not parts:
            line, start = number, offset
        end = offset + len(content)
        stripped = content.rstrip()
        if stripped.endswith(escape) and not stripped.endswith(escape * 2):
            parts.append(stripped[:-1])
            continue
        joined = "".join([*parts, content]).strip()
        instructions.append(RawInstruction(line, start, end, joined, _read_heredocs(joined, lines)))
        parts = []
    if parts:
        instructions.append(RawInstruction(line, start, end, "".join(parts).strip()))
    return instructions


def escape_character(text: str) -> str:
    """Return what the `# escape=` directive says; directives end at the first line that is not one."""
    for _, _, line in _numbered_lines(text):
        match = _DIRECTIVE.match(line.strip())
        if match is None:
            break
        if match[1].lower() == "escape" and match[2] in ("`", "\\"):
            return match[2]
    return "\\"


def _numbered_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the number of each line, where it begins, and its content."""
    offset = len(text) - len(text.removeprefix("\ufeff"))
    # Not splitlines: it takes form feeds and the like for line ends.
    for number, line in enumerate(text[offset:].split("\n"), 1):
        yield number, offset, line.removesuffix("\r")
        offset += len(line) + 1


def _read_heredocs(instruction: str, lines: Iterator[tuple[int, int, str]]) -> tuple[Heredoc, ...]:
    """Take the here-documents that an instruction announces from the lines that follow it."""
    if instruction.split(maxsplit=1)[0].upper() not in _WITH_HEREDOCS:
        return ()
    return tuple(_read_heredoc(match, lines) for match in _heredoc_marks(instruction))


def _read_heredoc(match: re.Match[str], lines: Iterator[tuple[int, int, str]]) -> Heredoc:
    strips_tabs, quote, name = match.groups()
    content: list[str] = []
    for _, _, raw in lines:
        line = raw.lstrip("\t") if strips_tabs else raw
        if line == name:
            return Heredoc(name, "".join(content), literal=bool(quote))
        content.append(f"{line}\n")
    return Heredoc(name, "".join(content), literal=bool(quote), is_closed=False)


def without_heredoc_marks(text: str) -> str:
    """Return the arguments of an instruction but for its here-documents."""
    for match in reversed(_heredoc_marks(text)):
        text = text[: match.start()] + text[match.end() :]
    return text.strip()


def _heredoc_marks(text: str) -> list[re.Match[str]]:
    marks = _HEREDOC_MARK.finditer(text)
    return [mark for mark in marks if not (_ends_in_quotes(before := text[: mark.start()]) or _ends_in_sum(before))]


def _ends_in_sum(text: str) -> bool:
    """Return whether a shell would take what follows for arithmetic, where << shifts a number."""
    return text.count("((") > text.count("))")


def _ends_in_quotes(text: str) -> bool:
    quote, escaped = "", False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
    return bool(quote)


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
    file = Dockerfile(name, (), escape_character(text))
    instructions = tuple(_checked(file, item) for item in scan(text))
    if not any(item.keyword == "FROM" for item in instructions):
        raise file.error(text.removesuffix("\n").count("\n") + 1, "no FROM instruction")
    first = next(item for item in instructions if item.keyword != "ARG")
    if first.keyword != "FROM":
        raise file.error(first.line, f"{first.keyword} stands before FROM; begin with FROM")
    return Dockerfile(name, instructions, file.escape)


def _checked(file: Dockerfile, item: RawInstruction) -> Instruction:
    keyword = item.keyword
    if keyword not in KEYWORDS:
        raise file.error(item.line, f"unknown instruction {keyword!r}; {did_you_mean(keyword, KEYWORDS)}")
    flags, rest = item.arguments()
    if not rest:
        raise file.error(item.line, f"{keyword} has no arguments")
    if open_heredoc := next((heredoc.name for heredoc in item.heredocs if not heredoc.is_closed), None):
        advice = f"close it with a line that holds only {open_heredoc}"
        raise file.error(item.line, f"the here-document {open_heredoc} never ends; {advice}")
    return Instruction(item.line, keyword, rest, flags, json_words(rest), item.heredocs)


def json_words(text: str) -> tuple[str, ...] | None:
    """Read the JSON form; anything that is not a list of strings is the shell form, as in Docker."""
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


_BUILDKIT_FLAGS = frozenset({"mount", "link", "chmod", "parents", "exclude", "checksum", "network", "security"})
_PLATFORM_ARG = re.compile(r"\b(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT)\b", re.IGNORECASE)


def buildkit_line(text: str) -> int | None:
    """Return the line of the first instruction that only BuildKit can read."""
    for item in scan(text):
        if item.heredocs or (item.keyword in _WITH_HEREDOCS and not _BUILDKIT_FLAGS.isdisjoint(item.arguments()[0])):
            return item.line
    return None


def needs_platform(text: str) -> bool:
    """Return whether a Dockerfile asks for what it is built on, which only BuildKit tells by itself."""
    return any(item.keyword == "ARG" and _PLATFORM_ARG.search(item.text) for item in scan(text))


def line_of_step(text: str, step: int, stage: int | None = None) -> int:
    """Return the line of the n-th instruction, of the whole file or of its n-th stage; 1 if there are fewer."""
    items, first = scan(text), 0
    if stage is not None:
        stages = [index for index, item in enumerate(items) if item.keyword == "FROM"]
        first = stages[stage - 1] if stage <= len(stages) else len(items)
    index = first + step - 1
    return items[index].line if index < len(items) else 1


# In the text of an instruction as the file has it: its keyword, and its flags over any number of lines.
_FLAGS = r"((?:--\S+\s+|[\\`][ \t]*\r?\n\s*)*)"
_FROM = re.compile(rf"\s*FROM\s+{_FLAGS}(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
_COPY = re.compile(rf"\s*(?:COPY|ADD)\s+{_FLAGS}", re.IGNORECASE)
#: A word, or a comment between the lines of an instruction.
_WORD = re.compile(r"(?<=\n)([ \t]*#[^\n]*)|\S+")
#: What is not a path in the build context.
_ELSEWHERE = re.compile(r"https?://|git@|git://|ssh://|<<", re.IGNORECASE)


def base_image(text: str) -> str | None:
    """Return the image that the last stage stands on; None if only a build can tell."""
    match = _last_base(text)
    image = match[2] if match else "scratch"
    return None if "$" in image or image == "scratch" else image


def with_base(text: str, image: str) -> str:
    """Let the last stage stand on another image: directly, or through the stages that it is made from."""
    match = _last_base(text)
    return text if match is None else text[: match.start(2)] + image + text[match.end(2) :]


def _last_base(text: str) -> re.Match[str] | None:
    """Return the FROM that names the image below the last stage."""
    stages = [match for item in scan(text) if (match := _FROM.match(text, item.start, item.end))]
    by_alias = {stage[3].lower(): stage for stage in stages if stage[3]}
    base = stages[-1] if stages else None
    while base and (below := by_alias.get(base[2].lower())) and below.start() < base.start():
        base = below
    return base


def with_sources(text: str, place: Callable[[int, str], str | None]) -> str:
    """Rename sources of COPY and ADD: `place` gets line and source, and returns another path or None for the same."""
    for item in reversed(scan(text)):
        body = text[item.start : item.end]
        match = _COPY.match(body)
        if match is not None and "--from" not in match[1].lower():
            body = body[: match.end()] + _with_words(body[match.end() :], item.line, place)
            text = text[: item.start] + body + text[item.end :]
    return text


def _with_words(arguments: str, line: int, place: Callable[[int, str], str | None]) -> str:
    if arguments.startswith("["):
        words = json_words(arguments) or ()
        renamed = (*(_placed(word, line, place) for word in words[:-1]), *words[-1:])
        return arguments if renamed == words else json.dumps(renamed)
    spans = [span for span in _WORD.finditer(arguments) if span[0] not in ("\\", "`") and not span[1]]
    for span in reversed(spans[:-1]):
        arguments = arguments[: span.start()] + _placed(span[0], line, place) + arguments[span.end() :]
    return arguments


def _placed(source: str, line: int, place: Callable[[int, str], str | None]) -> str:
    if _ELSEWHERE.match(source) or "$" in source:
        return source
    return place(line, source) or source
