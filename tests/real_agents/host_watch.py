"""Look at the host while agents run: what everyone can read of them, and what is left when they are gone."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

PERIOD_SEC = 0.3


class HostWatch:
    """Sample command lines and container definitions for secrets until the run has ended."""

    def __init__(self, secrets: Iterable[str], *, mark: str) -> None:
        self._secrets = [secret.encode() for secret in secrets]
        self._mark = mark.encode()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="host-watch")
        self.leaks: set[str] = set()
        """Where a secret was seen."""
        self._containers: set[str] = set()

    def left_processes(self) -> list[str]:
        """Return the processes whose environment holds the mark."""
        return [place for place, data in _read_all("environ") if self._mark in data]

    def __enter__(self) -> HostWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(PERIOD_SEC):
            self._look("a command line", _read_all("cmdline"))
            new = containers() - self._containers
            self._containers |= new
            self._look("a container definition", ((name, _docker("inspect", name).encode()) for name in new))

    def _look(self, kind: str, places: Iterable[tuple[str, bytes]]) -> None:
        self.leaks |= {f"{kind}: {place}" for place, data in places if any(one in data for one in self._secrets)}


def files_with(secrets: Iterable[str], root: Path) -> list[str]:
    """Return the files below a directory that hold a secret, as it is or as JSON spells it."""
    needles = [needle.encode() for secret in secrets for needle in {secret, json.dumps(secret)[1:-1]}]
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return [str(path.relative_to(root)) for path in files if any(one in path.read_bytes() for one in needles)]


def _read_all(name: str) -> Iterator[tuple[str, bytes]]:
    """Read one file of every process; those that end meanwhile are left out."""
    for path in Path("/proc").glob(f"[0-9]*/{name}"):
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            yield f"{path} {data[:60]!r}", data


def containers() -> set[str]:
    """Return the ids of all containers that sandboxes are in."""
    return {*_docker("ps", "-aq", "--no-trunc", "--filter", "label=benchflow.run").split()}


def _docker(*arguments: str) -> str:
    """Return what a docker command prints, nothing if it fails or there is none."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=30).stdout
    return ""
