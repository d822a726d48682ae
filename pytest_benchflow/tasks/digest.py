"""A content digest of a task: same files, same digest, whatever their times, owners or place; and a stamp for it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import read_text

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


IGNORE_FILE = ".harborignore"


def left_out(root: Path, directory: Path) -> tuple[str, ...]:
    """Return the paths below a directory that are not to be copied; patterns are those of git, from the task down."""
    folders, top = [str(directory)], str(root)
    while folders[-1] != top and folders[-1].startswith(f"{top}/"):
        folders.append(os.path.dirname(folders[-1]))
    rules = [(folder, _read(folder)) for folder in reversed(folders)]
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
    """Return whether the last pattern that speaks of a path leaves it out."""
    hides = False
    for folder, spec in rules:
        if spec is not None:
            verdict = spec.check_file(os.path.relpath(path, folder) + ("/" if is_dir else "")).include
            hides = hides if verdict is None else verdict
    return hides


def _read(folder: str) -> GitIgnoreSpec | None:
    path = os.path.join(folder, IGNORE_FILE)
    if not os.path.lexists(path):
        return None
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(read_text(path).splitlines())


PARTS = ("instruction.md", "environment", "tests", "verifier", "solution", "oracle", "steps", "prompts")
IGNORED = frozenset({"__pycache__", ".git", ".DS_Store", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".venv"})


def digest_tree(task: Path, file: str) -> str:
    """Hash lines of relative path, NUL, file hash, sorted by path."""
    root = str(task)
    total = hashlib.sha256()
    for relative in sorted(_files(root, (file, *PARTS))):
        total.update(os.fsencode(relative) + b"\0" + _hash(os.path.join(root, relative)).encode() + b"\n")
    return total.hexdigest()


#: What is written twice within a tick of the file system's clock looks unchanged: too fresh for a stamp to tell.
SETTLED_NS = 20_000_000


def stamp_tree(task: str, file: str, *, settled: bool = False) -> str | None:
    """Return what changes with any file that the digest of a task is made of: times, sizes and inodes, nothing is read.

    None if a file cannot be looked at; with `settled` also if one was changed a moment ago and might be again unseen.
    """
    try:
        marks = sorted(_marks(task, "", {file, IGNORE_FILE, *PARTS}))
    except OSError:
        return None
    newest = max((mark[2] for mark in marks), default=0)
    if settled and time.time_ns() - newest <= SETTLED_NS:
        return None
    return hashlib.sha256(repr(marks).encode("utf-8", "surrogateescape")).hexdigest()


#: Path, time of content, time of the last change of any kind, which nobody can set back, size, inode, target of a link.
_Mark = tuple[str, int, int, int, int, str]


def _marks(directory: str, prefix: str, names: Container[str] | None = None) -> Iterator[_Mark]:
    """Yield a mark of every file and link below a directory, at its top of those with these names."""
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name in IGNORED or name.endswith(".pyc") or (names is not None and name not in names):
                continue
            is_link = entry.is_symlink()
            if (not is_link or names is not None) and entry.is_dir():
                yield from _marks(entry.path, f"{prefix}{name}/")
                if not is_link:
                    continue
            status = os.stat(entry.path, follow_symlinks=not is_link or os.path.exists(entry.path))
            target = os.readlink(entry.path) if is_link else ""
            times = status.st_mtime_ns, status.st_ctime_ns
            yield f"{prefix}{name}", *times, status.st_size, status.st_ino, target


def parts(root: str) -> Iterator[str]:
    """Yield the relative path of every file and link inside the parts of a task, and of directories that are closed."""
    return _files(root, PARTS, links=True)


def _files(root: str, names: tuple[str, ...], *, links: bool = False) -> Iterator[str]:
    """Yield relative paths of files; links to directories count as files and are not entered."""
    for name in names:
        path = os.path.join(root, name)
        if os.path.islink(path) and links:
            yield name
        if os.path.isdir(path):
            yield from _walk(path, name)
        elif os.path.lexists(path):
            yield name


def _walk(directory: str, prefix: str) -> Iterator[str]:
    if not os.access(directory, os.R_OK | os.X_OK):
        yield prefix
        return
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name in IGNORED or entry.name.endswith(".pyc"):
                continue
            relative = f"{prefix}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, relative)
            else:
                yield relative


def _hash(path: str) -> str:
    if os.path.islink(path) and not os.path.isfile(path):
        return hashlib.sha256(b"link\0" + os.fsencode(os.readlink(path))).hexdigest()
    if not os.path.isfile(path):
        return hashlib.sha256(b"special").hexdigest()
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
