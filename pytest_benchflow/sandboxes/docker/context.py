"""A build context: which files it holds, what they amount to, and what its Dockerfile needs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from pytest_benchflow.sandboxes import archive
from pytest_benchflow.sandboxes.build_context import IgnoreRules

_FORMAT = "1"
#: The engine reads these, and then leaves them out itself if they are to be.
_FOR_THE_ENGINE = ("Dockerfile", ".dockerignore")
_BUILDKIT = re.compile(
    r"^\s*(?:(?:RUN|COPY|ADD)\s+(?:--\S+\s+|[\\`]\s*\n\s*)*--(?:mount|link|chmod|parents|exclude|checksum|network|security)\b"
    r"|(?:RUN|COPY|ADD)\s[^#\n]*<<-?[\"']?[A-Za-z_])",
    re.IGNORECASE | re.MULTILINE,
)
_PLATFORM = re.compile(r"^\s*ARG\s.*\b(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT)\b", re.IGNORECASE | re.MULTILINE)
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE | re.MULTILINE)
_ESCAPE = re.compile(r"^#\s*escape\s*=\s*`", re.IGNORECASE | re.MULTILINE)


class BuildContext:
    """The directory that a Dockerfile stands in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = f"{directory.name}/Dockerfile"
        self._ignore = IgnoreRules.read(directory / ".dockerignore")

    @cached_property
    def dockerfile(self) -> str:
        """The text of the Dockerfile."""
        return (self.directory / "Dockerfile").read_text(errors="replace")

    @property
    def needs_buildkit(self) -> bool:
        """Whether the engine's own builder cannot read the Dockerfile."""
        return self.buildkit_line is not None

    @property
    def buildkit_line(self) -> int | None:
        """The first line that only BuildKit can read."""
        match = _BUILDKIT.search(self.dockerfile)
        # The pattern may begin with empty lines.
        return match and self.dockerfile.count("\n", 0, match.end()) + 1

    @property
    def needs_platform(self) -> bool:
        """Whether the Dockerfile asks for what it is built on, which the engine's own builder does not tell."""
        return _PLATFORM.search(self.dockerfile) is not None

    @property
    def base(self) -> str | None:
        """The image that the last stage stands on; None if only a build can tell."""
        stages = {alias.lower(): image for image, alias in _FROM.findall(self.dockerfile) if alias}
        images = [image for image, _ in _FROM.findall(self.dockerfile)]
        image = images[-1] if images else "scratch"
        for _ in stages:
            image = stages.get(image.lower(), image)
        return None if "$" in image or image == "scratch" else image

    def digest(self, args: Mapping[str, str]) -> str:
        """Hash all that the image depends on: names, kinds, modes, link targets, bytes and arguments."""
        total = hashlib.sha256(json.dumps([_FORMAT, sorted(args.items())]).encode())
        for path, name in self._entries():
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
        """Write the context as the engine wants it."""
        archive.pack_dir(self.directory, stream, keep=self._keeps)

    def line_of(self, step: int, stage: int | None = None) -> int:
        """Return the line of the n-th instruction, of the whole file or of its n-th stage."""
        lines, first = self._instructions, 0
        if stage is not None:
            stages = [index for index, (_, word) in enumerate(lines) if word == "FROM"]
            first = stages[stage - 1] if stage <= len(stages) else len(lines)
        index = first + step - 1
        return lines[index][0] if index < len(lines) else 1

    @cached_property
    def _instructions(self) -> list[tuple[int, str]]:
        """The line and the word of every instruction."""
        escape = "`" if _ESCAPE.search(self.dockerfile) else "\\"
        found: list[tuple[int, str]] = []
        continued = False
        for number, line in enumerate(self.dockerfile.splitlines(), 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            if not continued:
                found.append((number, text.split()[0].upper()))
            continued = text.endswith(escape)
        return found

    def _entries(self) -> Iterator[tuple[str, str]]:
        return ((path, name) for path, name in archive.walk(self.directory) if self._keeps(name))

    def _keeps(self, name: str) -> bool:
        return name in _FOR_THE_ENGINE or not self._ignore.hides(name)


def _entry(path: str, name: str) -> bytes:
    status = os.lstat(path)
    content = hashlib.sha256()
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                content.update(chunk)
    elif stat.S_ISLNK(status.st_mode):
        content.update(os.fsencode(os.readlink(path)))
    return f"{status.st_mode:o} {content.hexdigest()} ".encode() + os.fsencode(name) + b"\0"
