"""What is particular to containers: labels, leases, leftovers, networks, secrets, an engine that goes away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Limits, Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.docker.backend import DockerBackend
from pytest_benchflow.sandboxes.docker.cleanup import list_leftovers, remove_leftovers
from pytest_benchflow.sandboxes.docker.client import Address
from pytest_benchflow.sandboxes.docker.container_spec import make_labels

Start = Callable[..., "asyncio.Future[Sandbox]"]
SPEC = SandboxSpec("test", docker_image="debian:bookworm-slim")


def inspect(name: str) -> dict[str, Any]:
    import docker

    client = docker.from_env(version="auto").api
    try:
        found: dict[str, Any] = client.inspect_container(name)
        return found
    finally:
        client.close()


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def exists(name: str) -> bool:
    import docker

    try:
        inspect(name)
    except docker.errors.NotFound:
        return False
    return True


@asynccontextmanager
async def opened(backend: DockerBackend) -> AsyncIterator[DockerBackend]:
    await backend.preflight()
    try:
        yield backend
    finally:
        await backend.aclose()


async def test_container_is_labelled_and_gone_after_stop(start: Start) -> None:
    sandbox = await start(name="my rollout/1")
    labels = inspect(sandbox.id)["Config"]["Labels"]
    assert labels["benchflow.rollout"] == "my rollout/1"
    assert labels["benchflow.owner_pid"] == str(os.getpid())
    assert {"benchflow.run", "benchflow.created"} <= set(labels)
    await sandbox.stop()
    assert not exists(sandbox.id)


async def test_stop_is_quick_and_zombies_are_reaped(start: Start) -> None:
    sandbox = await start()
    await sandbox.exec("for i in {1..20}; do (sleep 0.05 &); done; sleep 0.5")
    states = await sandbox.exec("cat /proc/[0-9]*/stat | cut -d' ' -f3 | sort | uniq -c")
    assert " Z" not in states.stdout
    began = time.monotonic()
    await sandbox.stop()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("n", [0, 1, 2])
async def test_pid_1_goes_on_running_commands_after_it_has_killed_programs(start: Start, n: int) -> None:
    sandbox = await start()
    await sandbox.exec(f"for i in $(seq {n}); do setsid sleep 1000 >/dev/null 2>&1 & done")
    killed = await sandbox.end_programs()
    assert [program.name for program in killed] == ["sleep"] * n
    assert sandbox._running().channel.idle
    assert (await sandbox.exec("grep -lz '^slee[p]' /proc/[0-9]*/cmdline")).stdout == ""


async def test_a_worker_that_is_killed_after_it_told_its_end_does_not_tell_it_again(start: Start) -> None:
    sandbox = await start()
    # Where others are at work, a worker goes late.
    await sandbox.exec("for i in {1..16}; do (while :; do :; done) >/dev/null 2>&1 </dev/null & done")
    keep = (
        await sandbox.exec(r"sed -nE 's/^([0-9]+) .*\) R( [^ ]+){18} ([0-9]+) .*/\1:\3/p' /proc/[0-9]*/stat")
    ).stdout
    for _ in range(20):
        assert (await sandbox.exec("echo before")).stdout == "before\n"
        assert await sandbox.end_programs(keep=keep.split()) == []
        assert (await sandbox.exec("echo after")).stdout == "after\n"


async def test_kept_container_outlives_the_backend_and_no_sweep_takes_it() -> None:
    async with opened(DockerBackend()) as backend:
        sandbox = backend.create(SPEC)
        await sandbox.start()
        await sandbox.exec("sleep 600 & echo kept >/file")
        await sandbox.stop(delete=False)
    try:
        assert f"docker exec -it {sandbox.id} bash" in sandbox.notes[-1]
        assert run("docker", "exec", sandbox.id, "cat", "/file") == "kept\n"
        await remove_leftovers()
        assert exists(sandbox.id)
    finally:
        run("docker", "rm", "-f", sandbox.id)


async def test_leftovers_of_a_dead_process_are_found_and_those_of_the_living_are_not(
    dead_labels: Callable[[str, str], dict[str, str]], start: Start
) -> None:
    labels = dead_labels("r", "dead")
    assert labels["benchflow.owner"] != make_labels("r", "x")["benchflow.owner"]
    living = await start()
    name = f"bf-leftover-{os.getpid()}"
    words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    run("docker", "create", "--name", name, *words, "debian:bookworm-slim")
    try:
        names = {item.name for item in await list_leftovers()}
        assert name in names
        assert living.id not in names
        assert living.id in {item.name for item in await list_leftovers(everything=True)}
        assert name in {item.name for item in await remove_leftovers()}
        assert not exists(name)
    finally:
        if exists(name):
            run("docker", "rm", "-f", name)


async def test_variables_are_not_in_the_container_config(start: Start) -> None:
    sandbox = await start(env={"OF_SANDBOX": "hidden-1"})
    for user in (None, "nobody"):
        done = await sandbox.exec("echo $OF_SANDBOX $OF_CALL", env={"OF_CALL": "hidden-2"}, user=user)
        assert done.stdout == "hidden-1 hidden-2\n"
        assert (await sandbox.exec("echo $OF_SANDBOX", env={"OF_SANDBOX": "mine"}, user=user)).stdout == "mine\n"
    process = await sandbox.open_process(["printenv", "OF_SANDBOX"])
    assert await process.read() == b"hidden-1\n"
    await process.wait()
    assert "hidden-" not in str(inspect(sandbox.id))


@pytest.mark.parametrize("network", ["host", "bridge"])
async def test_network_can_be_chosen(network: str) -> None:
    async with opened(DockerBackend(network=network)) as backend:
        sandbox = backend.create(SPEC)
        await sandbox.start()
        assert inspect(sandbox.id)["HostConfig"]["NetworkMode"] == network


async def test_network_from_the_environment_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BF_DOCKER_NETWORK", "no-such-net")
    with pytest.raises(SandboxError, match=r"Docker has no network 'no-such-net'; it has .*bridge"):
        await DockerBackend().preflight()


async def test_limits_reach_the_engine_and_what_cannot_be_kept_is_noted(start: Start) -> None:
    sandbox = await start(limits=Limits(cpus=1000, memory_mb=200, storage_mb=10))
    host = inspect(sandbox.id)["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 200 << 20
    assert host["NanoCpus"] <= (os.cpu_count() or 1) * 10**9
    assert any("cpus = 1000" in note for note in sandbox.notes)
    assert any("storage_mb" in note for note in sandbox.notes)


async def test_gpus_are_refused_where_there_are_none(backend: DockerBackend) -> None:
    if backend.capabilities.gpus:
        pytest.skip("this engine has GPUs")
    with pytest.raises(Exception, match="gpus = 1"):
        await backend.create(SandboxSpec("g", docker_image="debian:bookworm-slim", limits=Limits(gpus=1))).start()


async def test_fork_bomb_ends_with_its_timeout(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_benchflow.sandboxes.docker.container_spec.PIDS_LIMIT", 300)
    sandbox = await start()
    with pytest.raises(TimeoutError):
        await sandbox.exec("f() { f | f & }; f; sleep 600", timeout_sec=1)
    assert int((await sandbox.exec("ls -d /proc/[0-9]* | wc -l")).stdout) < 10


async def test_unreachable_daemon_is_one_line_that_says_what_to_do() -> None:
    with pytest.raises(SandboxError) as caught:
        await DockerBackend(address=Address("unix:///no/such.sock")).preflight()
    assert str(caught.value) == (
        "no Docker daemon answers at unix:///no/such.sock (No such file or directory); "
        "start it, set DOCKER_HOST, or use --bf-sandbox local"
    )


async def test_container_that_is_removed_under_a_sandbox_is_an_error_of_that_sandbox_only(
    start: Start, tmp_path: Path
) -> None:
    lost, other = await start(), await start()
    running = [asyncio.ensure_future(lost.exec("sleep 600", user=user)) for user in ("root", "nobody")]
    await asyncio.sleep(0.3)
    run("docker", "rm", "-f", lost.id)
    for command in running:
        with pytest.raises(SandboxError, match="gone"):
            await command
    with pytest.raises(SandboxError, match="gone"):
        await lost.exec("true")
    with pytest.raises(SandboxError, match="gone"):
        await lost.download_file("/etc/passwd", tmp_path / "passwd")
    assert (await other.exec("echo on")).stdout == "on\n"
    await lost.stop()


async def test_container_that_ends_while_nothing_runs_is_noticed_by_the_next_command(start: Start) -> None:
    lost = await start()
    run("docker", "kill", lost.id)
    await asyncio.sleep(0.3)
    async with asyncio.timeout(30):
        with pytest.raises(SandboxError, match="gone"):
            await lost.exec("true")


async def test_sandboxes_before_preflight_are_refused() -> None:
    with pytest.raises(SandboxError, match="preflight"):
        DockerBackend().create(SPEC)
