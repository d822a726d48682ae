"""A daemon that restarts, dies or has no bridge: tested on one of our own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import own_daemon
import pytest
from own_daemon import Daemon
from project import Project, wait_for

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.sandboxes.docker.backend import DockerBackend
from pytest_benchflow.sandboxes.docker.client import Address

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


def is_running(command_line: bytes) -> bool:
    """Tell whether a process of this machine, in a container or not, was started so."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes() == command_line:
                return True
    return False


def test_run_whose_daemon_dies_is_an_error_of_what_ran(daemon: Daemon, new_project: Callable[..., Project]) -> None:
    project = new_project()
    toml = f'[environment]\ndocker_image = "{own_daemon.IMAGE}"\nworkdir = "/app"\n'
    project.task("tasks/slow", toml=toml, solve="sleep 3007")
    project.task("tasks/next", toml=toml)
    options = ("--bf-sandbox=docker", "--bf-concurrency=1", "--bf-retries=0")
    runner = project.start("tasks/slow", "tasks/next", *options, env={"DOCKER_HOST": daemon.unix})
    try:
        wait_for(lambda: is_running(b"sleep\0003007\0"), "the solution", 60)
        daemon.stop(signal.SIGKILL)
        assert runner.wait(timeout=60) == 1
    finally:
        runner.kill()
        runner.wait()
        daemon.stop()
        daemon.start()
    said = (project.root / "pytest.log").read_text()
    assert "2 errors" in said
    assert "sandbox slow" in said
    assert "its container ended or the Docker daemon did" in said
    assert f"no Docker daemon answers at {daemon.unix}" in said
    assert "Traceback" not in said
    wait_for(lambda: not daemon.containers(), "the end of the container")


async def test_engine_without_a_bridge_gives_the_host_network(daemon: Daemon) -> None:
    backend = DockerBackend(address=Address(daemon.unix))
    await backend.preflight()
    sandbox = backend.create(SPEC)
    await sandbox.start()
    mode = daemon.docker("inspect", "-f", "{{.HostConfig.NetworkMode}}", sandbox.id).stdout
    assert mode == b"host\n"
    await backend.aclose()
