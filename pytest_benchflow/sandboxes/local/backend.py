"""The backend `local`: one zygote, one layer cache, many sandboxes; and what forbids it where it cannot start."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pytest_benchflow.core.errors import SandboxError, UnsupportedError
from pytest_benchflow.core.files import compose_file
from pytest_benchflow.sandboxes.base import BackendOption, Capabilities, Leftovers, SandboxSpec
from pytest_benchflow.sandboxes.local.builder import Builder, plan_environment
from pytest_benchflow.sandboxes.local.control import Launcher
from pytest_benchflow.sandboxes.local.host import Host
from pytest_benchflow.sandboxes.local.layers import LayerStore, Snapshots
from pytest_benchflow.sandboxes.local.machine import Machine, MachineConfig
from pytest_benchflow.sandboxes.local.sandbox import LocalSandbox

_DOCKER = "or use --bf-sandbox docker"
#: A kernel setting, the value that forbids user namespaces, and how to allow them.
_SETTINGS = (
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("user/max_user_namespaces", "0", "15000"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
)
#: The first kernel on which ordinary users can mount overlays.
_OVERLAYS_FOR_ALL = (5, 11)


async def check(host: Host, launcher: Launcher) -> None:
    """Start a sandbox and stop it again; SandboxError tells why that is not possible."""
    try:
        machine = await Machine.start(launcher, MachineConfig("preflight", host.privileged, leads_out=False))
    except SandboxError as error:
        raise explain(error.message, host) from None
    except OSError as error:
        raise SandboxError(f"the local sandbox cannot start: {error}", retryable=False) from None
    await machine.stop()


def explain(
    failure: str, host: Host, settings: Path = Path("/proc/sys"), release: str = os.uname().release
) -> SandboxError:
    """Turn the failure of a first sandbox into its cause and the command that cures it."""
    if not host.privileged:
        for name, forbidding, allowing in _SETTINGS:
            path = settings / name
            if path.exists() and path.read_text().strip() == forbidding:
                key = name.replace("/", ".")
                return SandboxError(
                    f"the local sandbox cannot start: {key} = {forbidding} forbids user namespaces",
                    advice=f"allow them with: sudo sysctl -w {key}={allowing} {_DOCKER}",
                    retryable=False,
                )
        version = tuple(map(int, re.findall(r"\d+", release)[:2]))
        if "mount overlay" in failure and version < _OVERLAYS_FOR_ALL:
            return SandboxError(
                f"the local sandbox cannot start: Linux {release} lets only root mount overlays; 5.11 lets everyone",
                advice=f"run pytest as root, {_DOCKER}",
                retryable=False,
            )
    return SandboxError(
        f"the local sandbox cannot start: {failure}",
        advice=f"inside a container it needs the right to mount (docker run --privileged), {_DOCKER}",
        retryable=False,
    )


class LocalBackend:
    """Implements `Backend` on Linux without a daemon, an image or root."""

    name = "local"
    options = (
        BackendOption(
            "network",
            "how programs reach the outside: auto as everywhere, proxy only through variables that name one",
            choices=("auto", "proxy"),
            default="auto",
        ),
    )

    def __init__(self, host: Host | None = None) -> None:
        self._host = host or Host.detect()
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

    def configure(self, values: Mapping[str, str]) -> None:
        """Take how programs reach the outside."""
        self._launcher.uses_rules = values.get("network") != "proxy"

    async def preflight(self) -> None:
        """Raise SandboxError with one clear reason if no sandbox could start here."""
        await check(self._host, self._launcher)

    def create(self, spec: SandboxSpec) -> LocalSandbox:
        """Return a sandbox that is not started yet; refuse what only an image could give, or no build could read."""
        directory = spec.environment_dir
        if spec.docker_image is not None and not (directory and (directory / "Dockerfile").is_file()):
            raise UnsupportedError(
                f"{spec.name}: docker_image = {spec.docker_image!r} needs an image", advice="use --bf-sandbox docker"
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
            plan=plan_environment(directory, self._host),
            snapshots=self._snapshots,
            stopped=self._sandboxes.discard,
        )
        self._sandboxes.add(sandbox)
        return sandbox

    async def build(self, spec: SandboxSpec) -> None:
        """Make the layers that sandboxes of this spec stand on, unless they are there."""
        if spec.environment_dir is not None and compose_file(spec.environment_dir) is None:
            await self._builder.build(spec, plan_environment(spec.environment_dir, self._host))

    def leftovers(self, *, unused_for_sec: float | None = None) -> list[Leftovers]:
        """Return what is on this machine's disk: half-built layers, half-installed agents, build contexts; layers."""
        from pytest_benchflow.sandboxes.local.cleanup import LocalLayers, LocalLeftovers

        return [LocalLeftovers(), *([] if unused_for_sec is None else [LocalLayers(unused_for_sec)])]

    async def aclose(self) -> None:
        """End every sandbox and the zygote; idempotent."""
        await asyncio.gather(*(sandbox.stop() for sandbox in list(self._sandboxes)), return_exceptions=True)
        await self._launcher.stop_all()
        await self._snapshots.aclose()
        await asyncio.to_thread(self._launcher.close)
        await asyncio.to_thread(self._launcher.close_forwarder)
