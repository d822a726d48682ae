"""The backend `docker`: one engine, many sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_benchflow.core.errors import BenchflowError, SandboxError
from pytest_benchflow.core.files import compose_file
from pytest_benchflow.sandboxes.base import BackendOption, Capabilities, Leftovers, SandboxSpec
from pytest_benchflow.sandboxes.docker.cleanup import DockerImages, DockerLeftovers, remove_leftovers
from pytest_benchflow.sandboxes.docker.client import Address, DockerEngine, find_address
from pytest_benchflow.sandboxes.docker.container_spec import EngineFacts
from pytest_benchflow.sandboxes.docker.containers import Starter
from pytest_benchflow.sandboxes.docker.images import Images
from pytest_benchflow.sandboxes.docker.networks import Networks
from pytest_benchflow.sandboxes.docker.project import ComposeStarter
from pytest_benchflow.sandboxes.docker.project_watcher import Watcher
from pytest_benchflow.sandboxes.docker.sandbox import DockerSandbox
from pytest_benchflow.sandboxes.network import is_own

_CAPABILITIES = dict.fromkeys(
    (
        *("no_network", "docker_image", "compose", "services", "users", "mounts"),
        *("survives_runner", "snapshots", "terminals", "custody"),
    ),
    True,
)


class DockerBackend:
    """Implements `Backend` on a Docker engine, local or remote."""

    name = "docker"
    options = (
        BackendOption(
            "network",
            "network of containers that may have one: host, bridge or a name (default: bridge, or host without one)",
        ),
    )

    def __init__(
        self, *, network: str | None = None, builds: int | None = None, address: Address | None = None
    ) -> None:
        """Use `network` for sandboxes that may have one: host, bridge or a name; None takes what the engine has."""
        self._chosen_network = network or os.environ.get("BF_DOCKER_NETWORK") or None
        self._builds = builds
        self._address = address
        self._engine: DockerEngine | None = None
        self._starter: Starter | None = None
        self._watcher: Watcher | None = None
        self._compose: ComposeStarter | None = None
        self._sandboxes: set[DockerSandbox] = set()
        self._sweeping: asyncio.Task[object] | None = None
        self._has_gpus = False

    @property
    def capabilities(self) -> Capabilities:
        """What its sandboxes can do; GPUs and networks that are guarded only once `preflight` has found them."""
        can_guard = self._starter is not None and self._starter.networks.can_guard
        return Capabilities(**_CAPABILITIES, gpus=self._has_gpus, allowlist=can_guard)

    def configure(self, values: Mapping[str, str]) -> None:
        """Take the network of its sandboxes."""
        self._chosen_network = values.get("network") or self._chosen_network

    async def preflight(self) -> None:
        """Raise SandboxError with one clear reason if no sandbox could start here; remove what dead runs left."""
        if self._starter is not None:
            return
        engine = DockerEngine(self._address or find_address())
        try:
            facts, networks = await engine.call(lambda client: (client.info(), client.networks()))
            names = {str(network["Name"]) for network in networks}
            network = self._network(names)
        except BaseException:
            engine.close()
            raise
        self._engine = engine
        engine_info = engine_facts(facts, names)
        self._has_gpus = engine_info.has_gpus
        network_of_builds = None if engine_info.has_bridge else "host"
        images = Images(engine, builds=self._builds, network=network_of_builds, is_podman=engine_info.is_podman)
        run = uuid.uuid4().hex[:12]
        is_here = engine.address.is_local and not engine_info.is_podman and is_on_this_machine(networks)
        guarded = Networks(engine, run=run, public=network, is_here=is_here)
        self._starter = Starter(engine, images, engine_info, run=run, networks=guarded)
        self._watcher = Watcher(engine.address)
        self._compose = ComposeStarter(self._starter, self._watcher)
        self._sweeping = asyncio.create_task(self._sweep(engine))

    def create(self, spec: SandboxSpec) -> DockerSandbox:
        """Return a sandbox that is not started yet."""
        if self._starter is None:
            raise SandboxError("the docker backend is not open", advice="await preflight() first", retryable=False)
        several = compose_file(spec.environment_dir) is not None
        starter = self._compose if several and self._compose is not None else self._starter
        capabilities = replace(
            self.capabilities,
            snapshots=starter.snapshots is not None,
            services=several,
            allowlist=self.capabilities.allowlist and not several,
        )
        sandbox = DockerSandbox(spec, starter, capabilities, self._sandboxes.discard)
        self._sandboxes.add(sandbox)
        return sandbox

    async def build(self, spec: SandboxSpec) -> None:
        """Build or pull the image of a sandbox; services of a compose project are built when it starts."""
        if self._starter is not None and compose_file(spec.environment_dir) is None:
            await self._starter.image(spec, "")

    def leftovers(self, *, unused_for_sec: float | None = None) -> list[Leftovers]:
        """Return what is in the daemon: containers, networks, volumes and snapshots of runs; images and agents."""
        images = [] if unused_for_sec is None else [DockerImages(unused_for_sec, self._address)]
        return [DockerLeftovers(self._address), *images]

    async def aclose(self) -> None:
        """End every sandbox and let go of the engine; idempotent."""
        await asyncio.gather(*(sandbox.stop() for sandbox in list(self._sandboxes)), return_exceptions=True)
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])
        if self._starter is not None and self._starter.snapshots is not None:
            await self._starter.snapshots.aclose()
        if self._starter is not None:
            await self._starter.networks.aclose()
        if self._watcher is not None:
            await asyncio.to_thread(self._watcher.close)
        if self._engine is not None:
            self._engine.close()
        self._engine = self._starter = self._compose = self._watcher = self._sweeping = None

    def _network(self, names: set[str]) -> str:
        chosen = self._chosen_network
        if chosen is None:
            return "bridge" if {"bridge", "podman"} & names else "host"
        if chosen not in names | {"host", "none", "bridge"}:
            raise SandboxError(
                f"Docker has no network {chosen!r}; it has {', '.join(sorted(names))}",
                advice="change --bf-docker-network or BF_DOCKER_NETWORK",
                retryable=False,
            )
        return chosen

    async def _sweep(self, engine: DockerEngine) -> None:
        with contextlib.suppress(BenchflowError):
            await remove_leftovers(engine)


def is_on_this_machine(networks: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the engine's bridge is an interface of this machine, and not of a virtual one."""
    bridge = next((network for network in networks if network["Name"] == "bridge"), None)
    ranges = (bridge or {}).get("IPAM", {}).get("Config") or []
    return any(is_own(_gateway(entry)) for entry in ranges)


def _gateway(entry: Mapping[str, Any]) -> str:
    """Return this machine's address in a range; an engine that has just made its bridge does not tell it yet."""
    if gateway := entry.get("Gateway"):
        return str(gateway)
    subnet = str(entry.get("Subnet") or "")
    return str(next(ipaddress.ip_network(subnet, strict=False).hosts())) if subnet else ""


def engine_facts(info: dict[str, Any], networks: set[str]) -> EngineFacts:
    """Return what an engine has, from what it says about itself."""
    # Podman's default network has its own name, and answers to `bridge` all the same.
    return EngineFacts(
        cpus=int(info.get("NCPU") or os.cpu_count() or 1),
        has_gpus="nvidia" in (info.get("Runtimes") or {}),
        has_bridge=bool({"bridge", "podman"} & networks),
        is_podman="BuildahVersion" in info,
        has_limits=info.get("CgroupDriver") != "none"
        and not (info.get("Rootless") and info.get("CgroupVersion") == "1"),
    )
