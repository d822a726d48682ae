"""Text for people: foreign output bounded and without control sequences, and hints for misspelt words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Drop escape sequences and control characters, keep tabs and line ends."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def one_line(text: str, limit: int = 120) -> str:
    """Return foreign text as one printable line of bounded length, for names that come from inside a sandbox."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def shortened(text: str, limit: int = 2000) -> str:
    """Return the end of a long text, printable, since the end is what says how it went."""
    clean = printable(text).strip()
    return clean if len(clean) <= limit else "…" + clean[-(limit - 1) :]


def tail(path: Path, *, lines: int = 20, max_bytes: int = 8000) -> str | None:
    """Return the last lines of a file, printable; None if there is no such file or nothing in it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - max_bytes))
            raw = file.read(max_bytes)
    except OSError:
        return None
    last = printable(raw.decode("utf-8", "replace")).strip().splitlines()[-lines:]
    return "\n".join(last) or None


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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" for a near miss, else the list of what is known."""
    names = sorted(known)
    near = closest(word, names)
    return f"did you mean {near}?" if near else f"known: {', '.join(names)}"
