"""Which sandboxes exist, by the word users choose them with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import entry_points

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.sandboxes.base import Backend

Factory = Callable[[], Backend]

AUTO = "auto"
ENTRY_POINTS = "pytest_benchflow.sandboxes"


def _local() -> Backend:
    if sys.platform != "linux":
        raise UsageError("the sandbox 'local' needs Linux", advice="use --bf-sandbox docker")
    from pytest_benchflow.sandboxes.local.backend import LocalBackend

    return LocalBackend()


def _best() -> tuple[str, str]:
    from pytest_benchflow.sandboxes.docker.client import daemon_answers

    if daemon_answers():
        return "docker", "its daemon answers"
    return "local", "embedded, no Docker daemon answers"


def _docker(network: str | None) -> Backend:
    from pytest_benchflow.sandboxes.docker.backend import DockerBackend

    return DockerBackend(network=network)


class SandboxRegistry:
    """Knows the backends of this package, of installed packages, and those registered by hand."""

    def __init__(self, *, docker_network: str | None = None) -> None:
        """Use `docker_network` for containers that may have one: host, bridge or a name; None lets Docker choose."""
        self._factories: dict[str, Factory] = {"docker": lambda: _docker(docker_network), "local": _local}
        self._searched = False

    def register(self, name: str, factory: Factory) -> None:
        """Add a backend, or replace the one of that name."""
        if name == AUTO or not name.replace("-", "").replace("_", "").isalnum():
            raise UsageError(f"{name!r} cannot name a sandbox", advice="use letters, digits and dashes")
        self._factories[name] = factory

    def names(self) -> list[str]:
        """List every word that `create` takes."""
        self._search()
        return sorted(self._factories)

    def create(self, name: str) -> Backend:
        """Make the backend called `name`; UsageError if there is none."""
        return self._factories[self.resolve(name)[0]]()

    def resolve(self, name: str) -> tuple[str, str]:
        """Return the backend that a user's word means here, and why; UsageError if there is none."""
        if name == AUTO:
            return _best()
        self._search()
        if name not in self._factories:
            raise UsageError(f"unknown sandbox {name!r}", advice=did_you_mean(name, [*self._factories, AUTO]))
        return name, "chosen"

    def _search(self) -> None:
        """Add installed packages' backends, once; a name taken by hand keeps its factory."""
        if not self._searched:
            self._searched = True
            for point in entry_points(group=ENTRY_POINTS):
                self._factories.setdefault(point.name, lambda point=point: point.load()())  # type: ignore[misc]
