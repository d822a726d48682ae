"""Sandboxes of an ordinary user where memory cannot hold what they write, as on kernels before 6.6."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from sandbox_helpers import on_disk, output

from pytest_benchflow.core.removal import remove_tree
from pytest_benchflow.sandboxes import Limits, Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend
from pytest_benchflow.testing.snapshots import SnapshotTests


class TestSnapshots(SnapshotTests):
    factory = "sandbox_helpers:on_disk"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Have a cache in which nobody else writes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BF_CACHE_DIR", str(directory := tmp_path_factory.mktemp("on-disk")))
        yield directory


@pytest.fixture
async def backend(cache: Path) -> AsyncIterator[LocalBackend]:
    backend = on_disk()
    yield backend
    await backend.aclose()


@pytest.fixture
async def sandbox(backend: LocalBackend) -> Sandbox:
    sandbox = backend.create(SandboxSpec("box"))
    await sandbox.start()
    return sandbox


def written(cache: Path) -> list[Path]:
    """List what sandboxes keep on disk."""
    return list((cache / "layers").glob("tmp-*"))


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


async def test_what_is_written_lies_where_nobody_else_can_read_it(sandbox: Sandbox, cache: Path) -> None:
    await sandbox.exec("echo secret > /notes")
    (directory,) = written(cache)
    assert (directory / "root" / "notes").read_text() == "secret\n"
    assert directory.parent.stat().st_mode & 0o077 == 0


async def test_a_directory_of_the_host_can_be_replaced(sandbox: Sandbox) -> None:
    await sandbox.exec("rm -r /usr/games; mkdir /usr/games; touch /usr/games/new", timeout_sec=60)
    assert await output(sandbox, "ls -A /usr/games") == "new\n"


async def test_nothing_is_left_after_stop_whatever_was_written(sandbox: Sandbox, cache: Path) -> None:
    # Longer than any path may be; not so deep that nobody else could remove it, should this fail.
    deep = f"import os\nfor _ in range(60):\n    os.mkdir('{'x' * 100}')\n    os.chdir('{'x' * 100}')\n"
    await sandbox.exec(f'python3 -c "{deep}"')
    await sandbox.exec("mkdir -p closed/inner; touch closed/inner/file; chmod 0 closed/inner closed")
    assert written(cache)
    await sandbox.stop()
    assert written(cache) == []


async def test_nothing_is_left_after_a_cancelled_start(backend: LocalBackend, cache: Path) -> None:
    for delay in (0, 0.002, 0.01, 0.03):
        sandbox = backend.create(SandboxSpec("cancelled"))
        task = asyncio.create_task(sandbox.start())
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await sandbox.stop()
    await backend.aclose()
    assert written(cache) == []


RUNNER = """
import asyncio
from sandbox_helpers import on_disk
from pytest_benchflow.sandboxes import SandboxSpec

async def main():
    backend = on_disk()
    for n in range(2):
        sandbox = backend.create(SandboxSpec(f"s{n}"))
        await sandbox.start()
        await sandbox.exec("setsid sleep 7031 & mkdir -p a/b; echo x > a/b/c; chmod 0 a")
    print("up", flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


def start_runner() -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    assert runner.stdout is not None
    with runner.stdout:
        assert runner.stdout.readline() == b"up\n"
    return runner


def test_nothing_is_left_of_a_killed_runner(cache: Path) -> None:
    runner = start_runner()
    assert len(written(cache)) == 2
    runner.send_signal(signal.SIGKILL)
    runner.wait(10)
    assert eventually(lambda: written(cache) == [])


def test_what_a_runner_killed_with_its_zygote_left_goes_at_the_next_start(cache: Path) -> None:
    runner = start_runner()
    zygotes = map(int, Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split())
    for pid in (*zygotes, runner.pid):
        os.kill(pid, signal.SIGKILL)
    runner.wait(10)
    assert len(left := written(cache)) == 2

    async def start() -> None:
        backend = on_disk()
        await backend.create(SandboxSpec("next")).start()
        assert not any(path in left for path in written(cache))
        await backend.aclose()

    asyncio.run(start())


async def test_storage_that_is_not_enforced_is_said(backend: LocalBackend) -> None:
    sandbox = backend.create(SandboxSpec("box", limits=Limits(storage_mb=100)))
    await sandbox.start()
    assert "storage_mb is not enforced in the local sandbox" in sandbox.notes


def test_removing_a_tree_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "tree" / "link").symlink_to("../kept")
    remove_tree(tmp_path / "tree")
    remove_tree(tmp_path / "tree")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]
