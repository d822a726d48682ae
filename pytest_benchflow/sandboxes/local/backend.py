"""The backend `local`: one zygote, one layer cache, many sandboxes."""

from __future__ import annotations

import asyncio
import itertools

from pytest_benchflow.compose_file import compose_file
from pytest_benchflow.errors import UnsupportedError
from pytest_benchflow.sandboxes.base import Capabilities, SandboxSpec

from .builder import Builder
from .environment import Host
from .launcher import Launcher
from .layers import LayerStore
from .preflight import check
from .sandbox import LocalSandbox
from .snapshots import Snapshots


class LocalBackend:
    """Implements `Backend` on Linux without a daemon, an image or root."""

    name = "local"

    def __init__(self, host: Host | None = None) -> None:
        self._host = host or Host.look()
        self._launcher = Launcher()
        store = LayerStore(privileged=self._host.privileged)
        self._builder = Builder(self._host, self._launcher, store)
        self._snapshots = Snapshots(store)
        self._numbers = itertools.count(1)
        self._sandboxes: set[LocalSandbox] = set()

    @property
    def capabilities(self) -> Capabilities:
        """What its sandboxes can do."""
        return self._host.capabilities

    async def preflight(self) -> None:
        """Raise SandboxError with one clear reason if no sandbox could start here."""
        await check(self._host, self._launcher)

    def create(self, spec: SandboxSpec) -> LocalSandbox:
        """Return a sandbox that is not started yet; refuse what only an image could give."""
        directory = spec.environment_dir
        if spec.docker_image is not None and not (directory and (directory / "Dockerfile").is_file()):
            raise UnsupportedError(
                f"{spec.name}: docker_image = {spec.docker_image!r} needs an image",
                advice="use --bf-sandbox docker",
            )
        if (file := compose_file(directory)) is not None:
            raise UnsupportedError(
                f"{spec.name}: {file.name} needs several containers", advice="use --bf-sandbox docker"
            )
        sandbox = LocalSandbox(
            spec,
            number=next(self._numbers),
            host=self._host,
            launcher=self._launcher,
            builder=self._builder,
            snapshots=self._snapshots,
            stopped=self._sandboxes.discard,
        )
        self._sandboxes.add(sandbox)
        return sandbox

    async def aclose(self) -> None:
        """End every sandbox and the zygote; idempotent."""
        await asyncio.gather(*(sandbox.stop() for sandbox in list(self._sandboxes)), return_exceptions=True)
        await self._launcher.stop_all()
        await self._snapshots.aclose()
        await asyncio.to_thread(self._launcher.close)
