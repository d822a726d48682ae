"""Text for people: foreign output bounded and without control sequences, and hints for misspelt words."""

from __future__ import annotations

import difflib
import re
import signal
from collections.abc import Iterable
from pathlib import Path

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])?")
#: What runners of CI systems take for a command: GitHub's `::` after blanks at the start of a line and `##[` anywhere,
#: Azure's `##vso[`, TeamCity's `##teamcity[`.
_WORKFLOW_COMMAND = re.compile(r"^([^\S\n]*):(?=:)|#(?=#(?:vso|teamcity)?\[)", re.MULTILINE)
#: Bytes that are no text; no file and no terminal takes them as they are.
_SURROGATE = re.compile(r"[\ud800-\udfff]")
#: Controls, separators of lines, characters that turn the direction of text, and two that no XML may hold.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)

#: Bars, percentages and the columns of download meters.
_PROGRESS = re.compile(
    r"[━█▉▊▋▌▍▎▏╸╺░▒▓]{3}|[#=*.-]{8,}[>\]|\s]|^\s*\d{1,3}(?:\.\d+)?\s?%"
    r"|^\s*% Total\s|^\s*Dload\s+Upload|^(?:\s*[\d.]+[kMG]?){3,}\s+[\d:-]+"
)
_BUILDKIT_PREFIX = re.compile(r"^#\d+ (?:\d+\.\d+ )?")
_SAYS_WHY = re.compile(
    r"^\s*(?:e:|error\b|fatal\b|npm (?:error|err!))|\berror:|\w(?:error|exception):|not found|no such file"
    r"|permission denied|could not|cannot |unable to|failed to|no space left|\w : depends: .* but ",
    re.IGNORECASE,
)
_SAYS_NOTHING = re.compile(
    r"^\s*(?:warning|\[notice\]|hint:|note:|debconf:|dpkg-preconfigure:|invoke-rc\.d:|npm (?:error|err!) code)"
    r"|some packages could not be installed|exited-with-error|complete log of this run",
    re.IGNORECASE,
)


def printable(text: str) -> str:
    """Drop escape sequences and control characters, keep tabs and line ends; no line is a command to a CI system."""
    plain = _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))
    safe = _WORKFLOW_COMMAND.sub(lambda match: f"{match[0]} ", plain)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", safe)


def one_line(text: str, limit: int = 120) -> str:
    """Return foreign text as one printable line of bounded length, for names that come from inside a sandbox."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def shortened(text: str, limit: int = 2000) -> str:
    """Return the end of a long text, printable, since the end is what says how it went."""
    clean = printable(text).strip()
    return clean if len(clean) <= limit else "…" + clean[-(limit - 1) :]


def duration(seconds: float) -> str:
    """Return a time as people say it: 4.2 s, 3 min 07 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def exit_status(code: int) -> str:
    """Return how a program ended: with an exit status, or by the signal that a shell's status stands for."""
    try:
        return f"was killed by {signal.Signals(-code if code < 0 else code - 128).name}"
    except ValueError:
        return f"exited with {code}"


def without_progress(text: str) -> list[str]:
    """Return the lines of a program's output as a terminal would leave them, without bars and meters."""
    left = map(_last_state, text.split("\n"))
    return [line.rstrip() for line in map(printable, left) if line.strip() and not _PROGRESS.search(line)]


def last_line(text: str, limit: int = 200) -> str | None:
    """Return the last line of a program's output that says something, None if there is none."""
    lines = without_progress(text)
    return one_line(lines[-1], limit) if lines else None


def with_cause(message: str) -> str:
    """Put the line of a program's output that says why it failed behind the first line, which says what failed."""
    first, *output = message.split("\n")
    lines = [_BUILDKIT_PREFIX.sub("", line.strip()) for line in without_progress("\n".join(output))]
    causes = (line for line in lines if _SAYS_WHY.search(line) and not _SAYS_NOTHING.search(line))
    cause = one_line(next(causes, lines[-1] if lines else ""), 200)
    head = first if not cause or first.endswith(cause) else f"{first}: {cause}"
    return "\n    ".join([head, *(line for line in lines if line != cause)])


def tail(path: Path, *, lines: int = 20, max_bytes: int = 8000) -> str | None:
    """Return the last lines of a file, printable; None if there is no such file or nothing in it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - max_bytes))
            raw = file.read(max_bytes)
    except OSError:
        return None
    text = "\n".join(map(_last_state, raw.decode("utf-8", "replace").split("\n")))
    return "\n".join(printable(text).strip().splitlines()[-lines:]) or None


def _last_state(line: str) -> str:
    """Return what a terminal shows of a line in the end: meters write over themselves."""
    return line.rstrip("\r").rpartition("\r")[2]


def distinct_names(named: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return for each pair of a name and a path the name, with as much of the path as tells it from its namesakes."""
    paths: dict[str, set[str]] = {}
    pairs = dict.fromkeys(named)
    for name, path in pairs:
        paths.setdefault(name, set()).add(path)
    return {
        (name, path): name if len(paths[name]) == 1 else f"{name} ({_distinct_end(path, paths[name])})"
        for name, path in pairs
    }


def _distinct_end(path: str, others: set[str]) -> str:
    parts = path.strip("/").split("/")
    ends = ("/".join(parts[-length:]) for length in range(1, len(parts) + 1))
    return next((end for end in ends if sum(f"/{other}".endswith(f"/{end}") for other in others) == 1), path)


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word nearest to `word`, if any is near."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def counted(number: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" for a near miss, else the list of what is known."""
    names = sorted(known)
    near = closest(word, names)
    return f"did you mean {near}?" if near else f"known: {', '.join(names)}"
