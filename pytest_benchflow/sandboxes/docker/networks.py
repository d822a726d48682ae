"""What containers can reach: the engine's own network, none, or one that leads nowhere but to our proxy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.core.network import Network
from pytest_benchflow.sandboxes.docker.client import DockerEngine, EngineError
from pytest_benchflow.sandboxes.docker.container_spec import make_labels
from pytest_benchflow.sandboxes.helpers import UnreachedHosts
from pytest_benchflow.sandboxes.network import Exit, Forwarder, proxy_variables

_NONE = "none"
_PROXY_BACKLOG = 128
#: Containers of this network see the machine that they run on, and not each other.
_APART = {"com.docker.network.bridge.enable_icc": "false"}


class Networks:
    """The networks of one run's containers."""

    def __init__(self, engine: DockerEngine, *, run: str, public: str, is_here: bool) -> None:
        self._engine = engine
        self._run = run
        self.public = public
        """The network of containers that may reach everything."""
        self.can_guard = is_here and public not in ("host", _NONE)
        """Whether containers can be led to a proxy of this process: their network must be on this machine."""
        self._guarded = f"bf-guarded-{run}"
        self._gateway: str | None = None
        self._making = asyncio.Lock()
        self._forwarder = Forwarder()

    def name_for(self, network: Network) -> str:
        """Return the network that a container with these rights is in."""
        if not network:
            return _NONE
        return self._guarded if network.is_restricted else self.public

    async def gateway(self) -> str:
        """Return this machine's address in the guarded network, which is made when it is first needed."""
        async with self._making:
            if self._gateway is None:
                labels = make_labels(self._run, "network")
                await self._engine.finish(
                    lambda client: client.create_network(
                        self._guarded, driver="bridge", internal=True, options=_APART, labels=labels
                    )
                )
                made = await self._engine.call(lambda client: client.inspect_network(self._guarded))
                self._gateway = str(made["IPAM"]["Config"][0]["Gateway"])
        return self._gateway

    async def move(self, container: str, before: str | None, network: Network) -> str | None:
        """Take a container out of one network and into the one that it should be in, None for none, and return it."""
        after = self.name_for(network)
        if after == before:
            return before
        if before is not None:
            await self._engine.finish(
                lambda client: client.disconnect_container_from_network(container, before, force=True)
            )
        if after == _NONE:
            return None
        await self._engine.finish(lambda client: client.connect_container_to_network(container, after))
        return after

    async def open_exit(self, container: str, network: Network) -> tuple[Exit, dict[str, str]]:
        """Open a proxy for one container of the guarded network; return it and the variables that lead to it."""
        gateway = await self.gateway()
        facts: dict[str, Any] = await self._engine.call(lambda client: client.inspect_container(container))
        address = str(facts["NetworkSettings"]["Networks"][self._guarded]["IPAddress"])
        listener = socket.create_server((gateway, 0), backlog=_PROXY_BACKLOG)
        port = listener.getsockname()[1]
        variables = proxy_variables(gateway, port, str(facts["Config"]["Hostname"]), address)
        return self._forwarder.open({"proxy": listener}, network, peer=address), variables

    async def aclose(self) -> None:
        """Remove the guarded network and end the proxies; every container is gone."""
        if self._gateway is not None:
            with contextlib.suppress(EngineError):
                await self._engine.finish(lambda client: client.remove_network(self._guarded))
            self._gateway = None
        await asyncio.to_thread(self._forwarder.close)


class ContainerNetwork:
    """What one container can reach, changed while it runs."""

    def __init__(self, networks: Networks, container: str, network: Network) -> None:
        self._networks = networks
        self._container = container
        self._network = network
        self._place: str | None = networks.name_for(network)
        self._exit: Exit | None = None
        self._unreached = UnreachedHosts()
        self.variables: dict[str, str] = {}
        """How its programs find the proxy, while it can reach nothing else."""

    @property
    def unreached(self) -> UnreachedHosts:
        """The hosts that its programs asked our proxy for in vain."""
        return self._exit.unreached if self._exit else self._unreached

    async def open(self) -> None:
        """Serve a container that has just started in its network."""
        if self._network.is_restricted:
            self._exit, self.variables = await self._networks.open_exit(self._container, self._network)

    async def change(self, network: Network) -> None:
        """Let programs reach what `network` allows from now on."""
        if network.is_restricted and self._exit is not None:
            await self._exit.set_network(network)
        else:
            await self.aclose()
            if network.is_restricted:
                await self._networks.gateway()
            self._place = await self._networks.move(self._container, self._place, network)
        self._network = network
        if self._exit is None:
            await self.open()

    async def aclose(self) -> None:
        """End the proxy; idempotent."""
        if self._exit is not None:
            self._unreached = self._exit.unreached
            await self._exit.aclose()
        self._exit, self.variables = None, {}


def require_guard(networks: Networks, network: Network, name: str) -> None:
    """Refuse a network that only a proxy of this process can give, where containers cannot reach one."""
    if network.is_restricted and not networks.can_guard:
        raise SandboxError(
            f'{name}: network_mode = "{network.mode}" needs a Docker engine of this machine with a bridge',
            advice="use --bf-sandbox local, or another --bf-docker-network",
            retryable=False,
        )
