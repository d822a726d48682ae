"""What a Dockerfile amounts to here: settings for every command, and the steps that make layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_SHELL = ("/bin/sh", "-c")


@dataclass(frozen=True, slots=True)
class Image:
    """Settings that hold for everything run after them."""

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    user: str | None = None
    shell: tuple[str, ...] = DEFAULT_SHELL
    dirs: tuple[str, ...] = ()
    """Every WORKDIR since the last step: they exist from then on."""


@dataclass(frozen=True, slots=True)
class Run:
    """Run a command."""

    line: int
    text: str
    argv: tuple[str, ...]
    image: Image
    args: Mapping[str, str]
    script: str | None = None
    """What the program reads from its standard input."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy files of the build context."""

    line: int
    text: str
    sources: tuple[str, ...]
    target: str
    """Absolute; a slash at its end means a directory."""
    image: Image
    owner: str | None = None
    mode: int | None = None
    unpack: bool = False
    """ADD: local archives are unpacked."""
    files: tuple[tuple[str, str], ...] = ()
    """Names and contents of files that the Dockerfile itself holds."""
    stage: int | None = None
    """Take the sources from this stage, where they are absolute paths, instead of the build context."""


Step = Run | Copy


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that others copy from."""

    steps: tuple[Step, ...]
    """From the host on."""
    dirs: tuple[str, ...]
    """Every WORKDIR after the last step."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a Dockerfile: what to do and what comes out."""

    steps: tuple[Step, ...]
    image: Image
    notes: tuple[str, ...]
    stages: tuple[Stage, ...] = ()
    """Those before the last."""
