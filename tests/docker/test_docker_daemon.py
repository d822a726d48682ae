"""A daemon that restarts, dies or has no bridge: tested on one of our own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import own_daemon
import pytest
from own_daemon import Daemon

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.sandboxes.docker import DockerBackend
from pytest_benchflow.sandboxes.docker.address import Address

pytestmark = pytest.mark.skipif(not own_daemon.can_run(), reason="a daemon of our own needs dockerd and root")
SPEC = SandboxSpec("daemon", docker_image=own_daemon.IMAGE)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with own_daemon.running() as daemon:
        yield daemon


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["restart", "crash"])
async def test_daemon_that_goes_and_comes_back(daemon: Daemon, number: signal.Signals) -> None:
    backend = DockerBackend(address=Address(daemon.unix))
    await backend.preflight()
    before = backend.create(SPEC)
    await before.start()
    running = asyncio.ensure_future(before.exec("sleep 600"))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(daemon.stop, number)
    async with asyncio.timeout(20):
        with pytest.raises(SandboxError, match="daemon"):
            await running
        with pytest.raises(SandboxError):
            await before.exec("true")
        with pytest.raises(SandboxError, match="no Docker daemon answers"):
            await backend.create(SPEC).start()
    await asyncio.to_thread(daemon.start)
    after = backend.create(SPEC)
    await after.start()
    assert (await after.exec("echo on")).stdout == "on\n"
    await before.stop()
    await backend.aclose()
    assert not daemon.containers()


async def test_engine_without_a_bridge_gives_the_host_network(daemon: Daemon) -> None:
    backend = DockerBackend(address=Address(daemon.unix))
    await backend.preflight()
    sandbox = backend.create(SPEC)
    await sandbox.start()
    mode = daemon.docker("inspect", "-f", "{{.HostConfig.NetworkMode}}", sandbox.id).stdout
    assert mode == b"host\n"
    await backend.aclose()
