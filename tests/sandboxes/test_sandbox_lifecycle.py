"""Nothing is left: after a stop, a failure, a cancellation, or the death of the runner."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from project import wait_for
from sandbox_helpers import StartSandbox, zygotes

from pytest_benchflow.core.errors import SandboxError, UnsupportedError
from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend


def running(mark: str) -> list[int]:
    """List the host's processes whose command line holds `mark`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes().replace(b"\0", b" "):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def descendants(pid: int) -> list[int]:
    """List the living processes below `pid`."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [found for child in map(int, children) for found in (child, *descendants(child))]


def our_mounts() -> list[str]:
    """List what sandboxes would have left in the host's table of mounts."""
    marks = ("/skeleton", "mask-etc", "upperdir=tmp-", "/merged/dev")
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if any(m in line for m in marks)]


def gone(pids: list[int]) -> bool:
    """Wait until all processes have ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() and _state(pid) != "Z" for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


async def test_an_interpreter_that_cannot_be_run_is_told_by_preflight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SandboxError, match=r"the local sandbox cannot start: .*No such file.*/nowhere/python"):
        await LocalBackend().preflight()


async def test_the_hosts_mounts_never_change(start: StartSandbox) -> None:
    sandbox = await start()
    assert "/skeleton" in (await sandbox.exec("cat /proc/mounts")).stdout
    assert our_mounts() == []


async def test_no_descriptor_is_left_open(start: StartSandbox, tmp_path: Path) -> None:
    async def use() -> None:
        sandbox = await start()
        await sandbox.exec("sleep 100 & echo x")
        await sandbox.open_process(["cat"])
        await sandbox.upload_dir(tmp_path, "/x")
        with pytest.raises(TimeoutError):
            await sandbox.exec("sleep 100", timeout_sec=0.05)
        with pytest.raises(SandboxError):
            await sandbox.open_process(["no-such-program"])
        await sandbox.stop()

    await use()
    before = sorted(os.listdir("/proc/self/fd"))
    await use()
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_a_killed_zygote_is_replaced(cache: Path) -> None:
    backend = LocalBackend()
    try:
        first, before = backend.create(SandboxSpec("first")), zygotes()
        await first.start()
        (zygote,) = zygotes() - before
        os.kill(zygote, signal.SIGKILL)
        assert gone([zygote])
        assert (await first.exec("echo still here")).stdout == "still here\n"
        second = backend.create(SandboxSpec("second"))
        await second.start()
        assert (await second.exec("echo new")).stdout == "new\n"
    finally:
        await backend.aclose()


RUNNER = """
import asyncio, os, time
from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.sandboxes.local import LocalBackend

async def main():
    backend = LocalBackend()
    for n in range(3):
        sandbox = backend.create(SandboxSpec(f"s{n}"))
        await sandbox.start()
        await sandbox.exec("setsid sleep 7021 & (setsid sleep 7022 &)")
        await sandbox.open_process(["sleep", "7023"])
    # As multiprocessing makes them: it has all descriptors of the runner, and outlives it.
    if (copy := os.fork()) == 0:
        time.sleep(100)
        os._exit(0)
    print("up", copy, flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


def test_everything_dies_with_the_runner(cache: Path) -> None:
    runner = subprocess.Popen([sys.executable, "-c", RUNNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert runner.stdout is not None
    with runner.stdout:
        up, copy = runner.stdout.readline().split()
    assert up == b"up"
    try:
        pids = [pid for pid in descendants(runner.pid) if pid != int(copy)]
        assert len(pids) >= 1 + 3 * 4
        runner.kill()
        runner.wait(10)
        assert gone(pids)
        assert our_mounts() == []
    finally:
        os.kill(int(copy), signal.SIGKILL)


async def test_an_image_without_dockerfile_is_refused(backend: LocalBackend, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="docker_image = 'python:3' needs an image; use --bf-sandbox docker"):
        backend.create(SandboxSpec("x", docker_image="python:3"))


async def test_compose_is_refused(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(
        UnsupportedError, match=r"docker-compose\.yaml needs several containers; use --bf-sandbox docker"
    ):
        backend.create(SandboxSpec("x", environment_dir=tmp_path))


def test_a_sandbox_says_so_in_another_event_loop_and_can_still_be_stopped(cache: Path) -> None:
    backend, mark = LocalBackend(), f"bf-loop-{uuid.uuid4().hex}"
    sandbox = backend.create(SandboxSpec("box"))

    async def start() -> None:
        await sandbox.start()
        await sandbox.exec(f"(exec -a {mark} sleep 600 >/dev/null 2>&1 &)")

    async def use() -> None:
        with pytest.raises(SandboxError, match="belongs to another event loop"):
            await sandbox.exec("true")
        await sandbox.stop()
        await backend.aclose()

    asyncio.run(start())
    wait_for(lambda: running(mark), "the start of the program")
    asyncio.run(use())
    assert not running(mark)
