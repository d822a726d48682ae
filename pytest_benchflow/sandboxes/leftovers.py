"""What runs have left in every kind of sandbox, seen alike: find it, tell whose it is, remove it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

#: Temporary directories with the build contexts of a run; the number of its process follows.
CONTEXT_PREFIX = "bf-context-"


@dataclass(frozen=True, slots=True)
class Trace:
    """One thing that a run has made and that outlives a process."""

    kind: str
    id: str
    name: str
    owner: str
    """Whose it is, for people."""
    created: float
    """Seconds since 1970; 0 if nobody knows."""
    abandoned: bool
    """Whether nobody needs it any more."""
    run: str | None = None


class Leftovers(Protocol):
    """One place where things may be left; open while the context lasts."""

    @property
    def title(self) -> str:
        """How people call the place."""

    async def __aenter__(self) -> Self:
        """Open the place; SandboxError if it cannot be asked."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it."""

    async def find(self) -> list[Trace]:
        """List everything of ours that is there."""

    async def remove(self, traces: Sequence[Trace]) -> list[Trace]:
        """Remove these and return what is gone."""


def docker_leftovers() -> Leftovers:
    """Return what is in the Docker daemon: containers, networks, volumes."""
    from .docker.traces import DockerLeftovers

    return DockerLeftovers()


def docker_images(max_age_sec: float) -> Leftovers:
    """Return the images in the Docker daemon that tasks were built into, as far as they are older than this."""
    from .docker.traces import DockerImages

    return DockerImages(max_age_sec)


def local_leftovers() -> Leftovers:
    """Return what is on this machine's disk: half-built layers, half-installed agents, copies of build contexts."""
    from .disk import LocalLeftovers

    return LocalLeftovers()


def local_layers(max_age_sec: float) -> Leftovers:
    """Return the layers that the local sandbox has built tasks into, as far as nobody used them for this long."""
    from .disk import LocalLayers

    return LocalLayers(max_age_sec)
