"""Build contexts: the files that COPY names, ignore rules and patterns as Docker reads them, and their content."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pytest_benchflow.sandboxes import archive

#: Temporary directories with the build contexts of a run; the number of its process follows.
CONTEXT_PREFIX = "bf-context-"
_CHARACTER = r"(\\.|[^\\\]-])"
_RANGE = re.compile(rf"{_CHARACTER}(?:-{_CHARACTER})?", re.DOTALL)
#: Some of these characters, or with ^ any but these.
_CLASS = re.compile(rf"\[(\^?)((?:{_RANGE.pattern})+)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """Decides what is left out of a build context; the last matching rule wins, `!` takes back in."""

    rules: tuple[tuple[re.Pattern[str], bool], ...] = ()

    @classmethod
    def read(cls, path: Path) -> IgnoreRules:
        """Read a .dockerignore; a missing one ignores nothing."""
        try:
            text = path.read_text("utf-8-sig", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return cls()
        rules = []
        for line in (line.strip() for line in text.split("\n") if not line.startswith("#")):
            if pattern := line.removeprefix("!").strip():
                pattern = posixpath.normpath(pattern).lstrip("/")
                # A pattern also means everything below what it names.
                rules.append((_compile(pattern, "(?:/.*)?"), not line.startswith("!")))
        return cls(tuple(rules))

    def hides(self, name: str) -> bool:
        """Return whether a path relative to the context is left out, itself or by a parent."""
        hidden = False
        for pattern, ignores in self.rules:
            if pattern.fullmatch(name):
                hidden = ignores
        return hidden


def is_pattern(text: str) -> bool:
    """Return whether a source of COPY may name several files."""
    return any(char in text for char in "*?[")


def matches(name: str, pattern: str) -> bool:
    """Return whether the name of a file, without directories, fits a pattern."""
    return _compile(pattern.replace("**", "*")).fullmatch(name) is not None


def _compile(pattern: str, rest: str = "") -> re.Pattern[str]:
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
            out, i = out + _class(match), match.end()
        else:
            i += pattern[i] == "\\" and i + 1 < len(pattern)
            out, i = out + re.escape(pattern[i]), i + 1
    try:
        return re.compile(out + rest, re.DOTALL)
    except re.error:  # a range that runs backwards
        return re.compile(re.escape(pattern))


def _class(match: re.Match[str]) -> str:
    ranges = (
        f"{re.escape(low[-1])}{'-' + re.escape(high[-1]) if high else ''}" for low, high in _RANGE.findall(match[2])
    )
    return f"[{match[1]}{''.join(ranges)}]"


class ContextError(ValueError):
    """A source that cannot be copied; the message names it."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file or directory to copy."""

    path: Path
    name: str
    """Relative to the build context."""

    @property
    def file_name(self) -> str:
        """What its copy in a directory is called: the name that was asked for, though that be a link."""
        return PurePosixPath(self.name).name


#: The engine reads these, and then leaves them out itself if they are to be.
_FOR_THE_ENGINE = ("Dockerfile", ".dockerignore")
_FORMAT = "1"


class BuildContext:
    """The directory that a Dockerfile stands in and that COPY reads from."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = f"{directory.name}/Dockerfile"
        """How messages call its Dockerfile."""
        self._top = directory.resolve()
        self._ignore = IgnoreRules.read(directory / ".dockerignore")

    @cached_property
    def dockerfile(self) -> str:
        """The text of the Dockerfile."""
        return (self.directory / "Dockerfile").read_text(errors="replace")

    def find(self, pattern: str) -> list[Source]:
        """Resolve one source of COPY; wildcards may match several files, or none."""
        name = os.path.normpath(pattern.lstrip("/") or ".")
        if name == ".." or name.startswith("../"):
            raise ContextError(f"{pattern}: lies outside the build context {self._top}")
        names = self._glob(name) if is_pattern(name) else [name]
        sources = [Source(self._resolve(match), match) for match in names if self._includes(match)]
        if not all(source.path.exists() for source in sources) or (not sources and not is_pattern(name)):
            raise ContextError(f"{pattern}: not found in {self._top}")
        return sources

    def keeps(self, source: Source, name: str) -> bool:
        """Return whether the entry `name` below a source directory is part of the context."""
        return not self._ignore.hides(str(PurePosixPath(source.name) / name))

    def digest(self, args: Mapping[str, str]) -> str:
        """Hash all that an image depends on: names, kinds, modes, link targets, bytes and arguments."""
        total = hashlib.sha256(json.dumps([_FORMAT, sorted(args.items())]).encode())
        for path, name in archive.walk(self.directory):
            if self._is_sent(name):
                total.update(_entry(path, name))
        return total.hexdigest()

    def digest_of(self, source: Source) -> str:
        """Hash names, kinds, modes, link targets and bytes of one source of COPY."""
        total = hashlib.sha256()
        if not source.path.is_dir():
            total.update(_entry(str(source.path), source.file_name, follow=True))
            return total.hexdigest()
        for path, name in archive.walk(source.path):
            if self.keeps(source, name):
                total.update(_entry(path, name))
        return total.hexdigest()

    def signature(self) -> int:
        """Return what changes whenever the digest may have changed, without reading any file."""
        facts = []
        for path, name in archive.walk(self.directory):
            status = os.lstat(path)
            facts.append((name, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino))
        return hash(tuple(facts))

    def pack(self, stream: BinaryIO) -> None:
        """Write the context as an engine wants it."""
        archive.pack_dir(self.directory, stream, keep=self._is_sent)

    def _is_sent(self, name: str) -> bool:
        return name in _FOR_THE_ENGINE or not self._ignore.hides(name)

    def _includes(self, name: str) -> bool:
        """Return whether a path is part of the context: a directory also is if anything in it was taken back in."""
        if name == "." or not self._ignore.hides(name):
            return True
        path = self._top / name
        return path.is_dir() and any(not self._ignore.hides(f"{name}/{inner}") for _, inner in archive.walk(path))

    def _resolve(self, name: str) -> Path:
        # Not Path.resolve, which fails where links lead in a ring.
        path = Path(os.path.realpath(self._top / name))
        if path != self._top and self._top not in path.parents:
            raise ContextError(f"{name}: is a link that leaves the build context {self._top}")
        return path

    def _glob(self, pattern: str) -> list[str]:
        names = [""]
        for part in PurePosixPath(pattern).parts:
            names = [
                f"{parent}/{entry}".lstrip("/")
                for parent in names
                if (self._top / parent).is_dir()
                for entry in sorted(os.listdir(self._top / parent))
                if matches(entry, part)
            ]
        return names


def _entry(path: str, name: str, *, follow: bool = False) -> bytes:
    status = os.stat(path, follow_symlinks=follow)
    content = hashlib.sha256()
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                content.update(chunk)
    elif stat.S_ISLNK(status.st_mode):
        content.update(os.fsencode(os.readlink(path)))
    return f"{status.st_mode:o} {content.hexdigest()} ".encode() + os.fsencode(name) + b"\0"
