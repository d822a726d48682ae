"""What a sandbox reaches: itself always, never its neighbours, others as far as it may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from pytest_benchflow.core.network import NO_NETWORK, PUBLIC
from pytest_benchflow.sandboxes import Backend, HasNetwork, Sandbox
from pytest_benchflow.testing.base import SandboxSuite

_PORT = 8765
_SERVE = """
import socket
server = socket.create_server(("", {port}))
print("up", flush=True)
while True:
    client, _ = server.accept()
    client.sendall(b"{word}")
    client.close()
"""
#: An address for documentation, which is nobody's.
_NOBODY = "192.0.2.1"


@asynccontextmanager
async def server_in(sandbox: Sandbox, word: str) -> AsyncIterator[None]:
    """Have a server in a sandbox that says one word to everybody."""
    process = await sandbox.open_process(["python3", "-c", _SERVE.format(port=_PORT, word=word)])
    try:
        async with asyncio.timeout(30):
            assert await process.read() == b"up\n", await process.read_stderr()
        yield
    finally:
        await process.kill()


async def word_from(sandbox: Sandbox, port: int = _PORT, host: str = "127.0.0.1") -> str:
    """Return what a server says to a program in a sandbox, or why it says nothing."""
    done = await sandbox.exec(f"exec 3<>/dev/tcp/{host}/{port} && cat <&3", timeout_sec=60)
    return done.stdout or done.stderr


class NetworkTests(SandboxSuite):
    """What can be reached from a sandbox."""

    async def test_servers_on_one_port_do_not_meet(self, backend: Backend) -> None:
        async with (
            self.started(backend, name="one") as one,
            self.started(backend, name="two") as two,
            server_in(one, "first"),
        ):
            assert "refused" in await word_from(two)
            async with server_in(two, "second"):
                assert (await word_from(one), await word_from(two)) == ("first", "second")

    async def test_servers_of_this_machine_are_out_of_reach(self, sandbox: Sandbox) -> None:
        def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"the host")
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            assert "refused" in await word_from(sandbox, port)

    async def test_no_network_leaves_only_the_loopback(self, backend: Backend) -> None:
        if not backend.capabilities.no_network:
            pytest.skip("the backend cannot take the network away")
        async with self.started(backend, network=NO_NETWORK) as sandbox:
            lines = (await sandbox.exec("cat /proc/net/dev")).stdout.splitlines()[2:]
            assert {line.split(":")[0].strip() for line in lines} <= {"lo", "sit0", "tunl0", "ip6tnl0"}
            assert "refused" in await word_from(sandbox, 1)
            assert "unreachable" in await word_from(sandbox, 80, _NOBODY)
            async with server_in(sandbox, "own"):
                assert await word_from(sandbox) == "own"

    async def test_network_is_taken_and_given_back_while_it_runs(self, backend: Backend) -> None:
        if not backend.capabilities.allowlist:
            pytest.skip("the backend cannot change the network of a sandbox")
        async with self.started(backend, later_networks=(NO_NETWORK,)) as sandbox:
            changes = cast("HasNetwork", sandbox)
            async with server_in(sandbox, "own"):
                for network in (NO_NETWORK, PUBLIC, NO_NETWORK):
                    await changes.set_network(network)
                    assert await word_from(sandbox) == "own"
            assert await word_from(sandbox, 80, _NOBODY) != ""
            assert (await sandbox.exec("getent hosts example.com", timeout_sec=60)).return_code != 0
