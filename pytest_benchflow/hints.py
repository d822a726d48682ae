"""Say which known word an unknown one was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
