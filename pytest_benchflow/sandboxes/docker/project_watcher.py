"""Remove compose projects through the engine, and a process that does so when the runner cannot any more.

A compose project has containers that know nothing of the runner, so unlike a single container it does not end by
itself. The watcher is this module run as a program: it reads `+PROJECT` and `-PROJECT`, and when its input ends
without a goodbye, it removes what is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_benchflow.core.process import keep_from_forks
from pytest_benchflow.sandboxes.docker.client import Address, find_address
from pytest_benchflow.sandboxes.docker.container_spec import PROJECT

if TYPE_CHECKING:
    import docker


#: How compose is told the name of a project.
PROJECT_OPTION = "--project-name"
#: The engine may still be about to add something.
_QUIET_ROUNDS = 3
_ROUND_SEC = 2.0


def containers_of(client: docker.APIClient, project: str) -> list[dict[str, Any]]:
    """List the containers of a project."""
    found: list[dict[str, Any]] = client.containers(all=True, filters={"label": f"{PROJECT}={project}"})
    return found


def remove_project(client: docker.APIClient, project: str) -> int:
    """Remove containers, networks and volumes of a project and return how many there were."""
    from docker.errors import NotFound

    chosen = {"label": f"{PROJECT}={project}"}
    containers = containers_of(client, project)
    for container in containers:
        try:
            client.remove_container(container["Id"], force=True, v=True)
        except NotFound:
            continue
    networks = client.networks(filters=chosen)
    for network in networks:
        client.remove_network(network["Id"])
    volumes = client.volumes(filters=chosen)["Volumes"] or []
    for volume in volumes:
        client.remove_volume(volume["Name"], force=True)
    return len(containers) + len(networks) + len(volumes)


class Watcher:
    """The runner's side of the watcher, started with the first project."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def watch(self, project: str, directory: Path) -> None:
        """Have a project and the directory of its files removed if this process dies."""
        with self._lock:
            self._start()
            self._send(f"+{project} {directory}\n")

    def forget(self, project: str) -> None:
        """Say that a project is gone."""
        with self._lock:
            self._send(f"-{project}\n")

    def close(self) -> None:
        """End the watcher; idempotent."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def _start(self) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                env=self._address.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            assert self._process.stdin is not None
            keep_from_forks(self._process.stdin)

    def _send(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()
            except BrokenPipeError:
                # Somebody killed it; the next project gets a new one, and labels tell of the others.
                self._process.wait()
                self._process = None


def _read_until_end(lines: Iterable[str]) -> dict[str, str]:
    projects: dict[str, str] = {}
    for line in lines:
        name, _, directory = line[1:].rstrip("\n").partition(" ")
        if line[0] == "+":
            projects[name] = directory
        else:
            projects.pop(name, None)
    return projects


def _end_commands(projects: Collection[str]) -> None:
    """Kill the compose commands of a runner: one that pulls would start services after all else is removed."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text(errors="replace").split("\0")
        except OSError:
            continue
        if any((PROJECT_OPTION, project) in pairwise(words) for project in projects):
            with contextlib.suppress(OSError):
                os.kill(int(path.parent.name), signal.SIGKILL)


def _main() -> None:
    left = _read_until_end(sys.stdin)
    if not left:
        return
    _end_commands(left)
    for directory in left.values():
        shutil.rmtree(directory, ignore_errors=True)
    from docker.errors import DockerException

    client = find_address().client()
    quiet = 0
    for _ in range(30):
        found = 0
        for project in left:
            try:
                found += remove_project(client, project)
            except DockerException:
                found += 1
        quiet = 0 if found else quiet + 1
        if quiet == _QUIET_ROUNDS:
            return
        time.sleep(_ROUND_SEC)


if __name__ == "__main__":
    _main()
