"""Services beside main: commands in them end there, and files come out of them whatever their image lacks."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pytest_benchflow.core.errors import SandboxError, UnsupportedError, UsageError
from pytest_benchflow.sandboxes import Sandbox, SandboxSpec, Service, service_of, stop_main
from pytest_benchflow.sandboxes.docker.backend import DockerBackend

pytestmark = [
    # One project serves them all: none of these tests needs main, and what one of them breaks no other one uses.
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.compose,
]
#: One with busybox as its shell, files in memory and nothing else writable; one with dash, and not as root.
COMPOSE = """
services:
  small:
    image: bf-test/busybox:1
    command: [sleep, "600"]
    read_only: true
    tmpfs: [/memory]
    environment: {OWN: mine}
    working_dir: /etc
  other:
    image: debian:bookworm-slim
    command: [sleep, "600"]
    user: nobody
  victim:
    image: debian:bookworm-slim
    command: [sleep, "600"]
"""
FORK = "(trap '' TERM; while :; do sleep 600 & wait; done) & sleep 600"
COUNT = (
    "n=0; for f in /proc/[0-9]*/cmdline; do case $(tr '\\0' ' ' <$f) in 'sleep 600 ') n=$((n+1));; esac; done; echo $n"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    directory = tmp_path_factory.mktemp("environment")
    (directory / "docker-compose.yaml").write_text(COMPOSE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BF_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "bf-cache"))
        backend = DockerBackend()
        await backend.preflight()
        sandbox = backend.create(SandboxSpec("many", environment_dir=directory, env={"OF_MAIN": "x"}, workdir="/srv"))
        await sandbox.start()
        yield sandbox
        await backend.aclose()


def kill_container(project: str, service: str) -> None:
    labels = {"project": project.lower(), "service": service}
    filters = [
        word for key, value in labels.items() for word in ("--filter", f"label=com.docker.compose.{key}={value}")
    ]
    found = subprocess.check_output(["docker", "ps", "--quiet", *filters], text=True).split()
    subprocess.run(["docker", "kill", *found], check=True, capture_output=True)


async def test_commands_run_with_what_the_service_has(sandbox: Sandbox) -> None:
    small, other = service_of(sandbox, "small"), service_of(sandbox, "other")
    assert service_of(sandbox, "main") is sandbox
    assert isinstance(small, Service)
    done = await small.exec('pwd; id -u; echo "$OWN|$OF_MAIN|$GIVEN"; cat; exit 3', env={"GIVEN": "y"}, stdin=b"in")
    assert (done.return_code, done.stdout, done.stderr) == (3, "/etc\n0\nmine||y\nin", "")
    done = await other.exec("id -un >&2; cd /; pwd", cwd="/tmp")
    assert (done.stdout, done.stderr) == ("/\n", "nobody\n")
    assert (await other.exec("id -u; pwd", user=0, cwd="/usr")).stdout == "0\n/usr\n"
    # What stays behind in the background does not keep its caller waiting.
    assert (await small.exec("sleep 300 & echo on; kill %1")).stdout == "on\n"
    async with asyncio.timeout(30):
        assert (await small.exec("sleep 300 & echo on")).stdout == "on\n"
    with pytest.raises(SandboxError, match="service other of sandbox many has no directory /none to run in"):
        await other.exec("true", cwd="/none")
    with pytest.raises(UsageError, match=r"docker-compose\.yaml has no service 'smal'; did you mean small\?"):
        service_of(sandbox, "smal")


@pytest.mark.parametrize("name", ["small", "other"])
async def test_a_command_over_time_is_killed_with_all_it_started(sandbox: Sandbox, name: str) -> None:
    service = service_of(sandbox, name)
    assert (await service.exec(COUNT)).stdout == "1\n"
    with pytest.raises(TimeoutError, match="command timed out after 1 s"):
        await service.exec(f"env -i sh -c {FORK!r} & {FORK}", timeout_sec=1)
    assert (await service.exec(COUNT)).stdout == "1\n"


async def test_files_come_out_whatever_the_service_lacks(sandbox: Sandbox, tmp_path: Path) -> None:
    small, victim = service_of(sandbox, "small"), service_of(sandbox, "victim")
    await small.exec("mkdir /memory/d && echo 1 >/memory/d/one && ln -s /etc/passwd /memory/d/link")
    await small.download_dir("/memory", tmp_path / "memory")
    assert [path.name for path in sorted((tmp_path / "memory/d").iterdir())] == ["one"]
    await small.download_file("/memory/d/one", tmp_path / "one")
    assert (tmp_path / "one").read_text() == "1\n"
    await victim.exec("mkdir /root/d; echo 2 >/root/d/two; chmod 600 /root/d/two; rm /bin/tar", user=0)
    for state in ("without tar", "without a shell", "stopped"):
        await victim.download_dir("/root/d", tmp_path / state)
        assert (tmp_path / state / "two").read_text() == "2\n"
        with pytest.raises(FileNotFoundError, match=r"/root/d in service victim of sandbox many is not a file"):
            await victim.download_file("/root/d", tmp_path / "none")
        with pytest.raises(FileNotFoundError, match=r"no directory /root/none in service victim of sandbox many"):
            await victim.download_dir("/root/none", tmp_path / "none")
        if state == "without tar":
            await victim.exec("rm /bin/sh", user=0)
            with pytest.raises(SandboxError, match="service victim of sandbox many: sh cannot be started"):
                await victim.exec("true")
        elif state == "without a shell":
            kill_container(sandbox.id, "victim")
            with pytest.raises(SandboxError, match="service victim of sandbox many is gone"):
                await victim.exec("true")


async def test_services_outlive_main_until_the_sandbox_stops(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/deep/file").write_text("from the host\n")
    await stop_main(sandbox)
    await stop_main(sandbox)
    with pytest.raises(SandboxError, match="sandbox many is gone"):
        await sandbox.exec("true")
    small, other = service_of(sandbox, "small"), service_of(sandbox, "other")
    for service, target in ((small, "/memory/new"), (other, "/opt/new")):
        await service.upload_dir(tmp_path / "tree", target)
        await service.upload_file(tmp_path / "tree/deep/file", f"{target}/deep/er/file")
        assert (await service.exec(f"cat {target}/deep/file {target}/deep/er/file")).stdout == "from the host\n" * 2
    with pytest.raises(SandboxError, match=r"cannot write /opt in service small of sandbox many: .*[Rr]ead-only"):
        await small.upload_dir(tmp_path / "tree", "/opt")


async def test_a_sandbox_of_one_container_has_no_services() -> None:
    backend = DockerBackend()
    await backend.preflight()
    sandbox = backend.create(SandboxSpec("one"))
    assert backend.capabilities.services
    assert not sandbox.capabilities.services
    with pytest.raises(UnsupportedError, match=r"has no service 'db'; use main"):
        service_of(sandbox, "db")
    await backend.aclose()
