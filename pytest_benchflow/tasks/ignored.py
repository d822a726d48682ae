"""What `.harborignore` files keep from being copied out of the tests and solutions of a task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .text import read_text

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".harborignore"


def left_out(root: Path, directory: Path) -> tuple[str, ...]:
    """Return the paths below a directory that are not to be copied; patterns are those of git, from the task down."""
    folders = [*reversed([path for path in directory.parents if path == root or root in path.parents]), directory]
    rules = [(str(folder), _read(str(folder))) for folder in folders]
    if not any(spec for _, spec in rules) and not any(IGNORE_FILE in files for _, _, files in os.walk(directory)):
        return ()
    return tuple(os.path.relpath(path, directory) for path in _hidden(str(directory), rules))


def _hidden(folder: str, rules: list[tuple[str, GitIgnoreSpec | None]]) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            is_dir = entry.is_dir(follow_symlinks=False)
            if entry.name == IGNORE_FILE or _hides(entry.path, rules, is_dir=is_dir):
                yield entry.path
            elif is_dir:
                yield from _hidden(entry.path, [*rules, (entry.path, _read(entry.path))])


def _hides(path: str, rules: list[tuple[str, GitIgnoreSpec | None]], *, is_dir: bool) -> bool:
    """Say whether the last pattern that speaks of a path leaves it out."""
    hides = False
    for folder, spec in rules:
        if spec is not None:
            said = spec.check_file(os.path.relpath(path, folder) + ("/" if is_dir else "")).include
            hides = hides if said is None else said
    return hides


def _read(folder: str) -> GitIgnoreSpec | None:
    path = os.path.join(folder, IGNORE_FILE)
    if not os.path.lexists(path):
        return None
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(read_text(path).splitlines())
