"""Mounts are volumes, filled once and completely; what is half filled is never shown."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from pytest_benchflow.cli.main import main
from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Mount, Sandbox, SandboxSpec, archive
from pytest_benchflow.sandboxes.docker.backend import DockerBackend
from pytest_benchflow.sandboxes.docker.cleanup import DockerImages
from pytest_benchflow.sandboxes.docker.container_spec import volume_name

Start = Callable[..., "asyncio.Future[Sandbox]"]
TARGET = "/opt/bundle"
SHOW = f"cat {TARGET}/a {TARGET}/b {TARGET}/sub/c"
KILLED_RUNNER = """
import asyncio, sys, tarfile, time
from pathlib import Path
from pytest_benchflow.sandboxes import Mount, SandboxSpec, archive
from pytest_benchflow.sandboxes.docker import DockerBackend

def half(source, stream, **options):
    begun = tarfile.TarInfo("a")
    begun.size = 1 << 30
    stream.write(begun.tobuf() + bytes(1 << 20))
    stream.flush()
    print("half", flush=True)
    time.sleep(600)

async def main():
    archive.pack_dir = half
    backend = DockerBackend()
    await backend.preflight()
    mount = Mount(Path(sys.argv[1]), "/opt/bundle", sys.argv[2])
    await backend.create(SandboxSpec("killed", docker_image="debian:bookworm-slim", mounts=(mount,))).start()

asyncio.run(main())
"""


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, check=True, text=True).stdout.strip()


@pytest.fixture
async def mount(backend: DockerBackend, tmp_path: Path) -> AsyncIterator[Mount]:
    """Give a directory with three files; its volume goes with the test."""
    source = tmp_path / "agent-1.0"
    (source / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (source / name).write_text(f"{name}\n")
    mount = Mount(source, TARGET, f"test-{uuid.uuid4().hex[:12]}")
    yield mount
    await backend.aclose()
    for container in docker("ps", "-aq", "--filter", f"name=fill-{mount.key}").split():
        docker("rm", "--force", container)
    docker("volume", "rm", "--force", volume_name(mount))


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Note every directory that is sent to the daemon."""
    sent: list[Path] = []
    whole = archive.pack_dir

    def noting(source: Path, stream: BinaryIO, **options: bool) -> None:
        sent.append(source)
        whole(source, stream, **options)

    monkeypatch.setattr(archive, "pack_dir", noting)
    return sent


async def test_a_volume_is_filled_once_by_all_who_start_at_the_same_time(mount: Mount, packed: list[Path]) -> None:
    async def one(backend: DockerBackend) -> str:
        sandbox = backend.create(SandboxSpec("once", docker_image="debian:bookworm-slim", mounts=(mount,)))
        await sandbox.start()
        return (await sandbox.exec(SHOW)).stdout

    backends = [DockerBackend(), DockerBackend()]
    for backend in backends:
        await backend.preflight()
    try:
        shown = await asyncio.gather(*(one(backend) for backend in backends for _ in range(2)))
    finally:
        for backend in backends:
            await backend.aclose()
    assert shown == ["a\nb\nsub/c\n"] * 4
    assert packed == [mount.source]


async def test_what_a_killed_runner_filled_half_is_filled_again(start: Start, mount: Mount) -> None:
    argv = [sys.executable, "-c", KILLED_RUNNER, str(mount.source), mount.key]
    runner = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert runner.stdout is not None
    assert await runner.stdout.readline() == b"half\n"
    runner.kill()
    await runner.wait()
    assert docker("volume", "inspect", "--format", "{{.Name}}", volume_name(mount))
    sandbox = await start(mounts=(mount,))
    assert (await sandbox.exec(SHOW)).stdout == "a\nb\nsub/c\n"


async def test_a_failed_filling_is_one_error_and_the_next_start_fills(
    start: Start, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(source: Path, stream: BinaryIO, **options: bool) -> None:
        raise PermissionError(13, "Permission denied", str(source / "b"))

    with monkeypatch.context() as patch:
        patch.setattr(archive, "pack_dir", broken)
        with pytest.raises(SandboxError, match="Permission denied"):
            await start(mounts=(mount,))
    sandbox = await start(mounts=(mount,))
    assert (await sandbox.exec(SHOW)).stdout == "a\nb\nsub/c\n"


async def test_cancelled_filling_ends_soon_and_leaves_no_container(
    backend: DockerBackend, start: Start, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = asyncio.Event()
    loop = asyncio.get_running_loop()

    def endless(source: Path, stream: BinaryIO, **options: bool) -> None:
        loop.call_soon_threadsafe(sending.set)
        while True:
            stream.write(bytes(1 << 16))

    with monkeypatch.context() as patch:
        patch.setattr(archive, "pack_dir", endless)
        starting = asyncio.ensure_future(start(mounts=(mount,)))
        await sending.wait()
        starting.cancel()
        async with asyncio.timeout(20):
            await asyncio.gather(starting, return_exceptions=True)
    assert not docker("ps", "-aq", "--filter", f"name=fill-{mount.key}")
    sandbox = await start(mounts=(mount,))
    assert (await sandbox.exec(SHOW)).stdout == "a\nb\nsub/c\n"


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
async def test_a_volume_that_somebody_removed_is_filled_again(
    start: Start, mount: Mount, packed: list[Path], replaced: bool
) -> None:
    await (await start(mounts=(mount,))).stop()
    docker("volume", "rm", volume_name(mount))
    if replaced:
        # Engines date volumes to the second.
        await asyncio.sleep(1.1)
        docker("volume", "create", volume_name(mount))
    sandbox = await start(mounts=(mount,))
    assert (await sandbox.exec(SHOW)).stdout == "a\nb\nsub/c\n"
    await sandbox.stop()
    await (await start(mounts=(mount,))).stop()
    assert len(packed) == 2


async def test_a_file_of_two_names_is_sent_once(start: Start, mount: Mount) -> None:
    (mount.source / "sub" / "twin").hardlink_to(mount.source / "a")
    sandbox = await start(mounts=(mount,))
    done = await sandbox.exec(f"cat {TARGET}/sub/twin; stat -c %h {TARGET}/a")
    assert done.stdout == "a\n2\n"


@pytest.mark.compose
async def test_main_of_a_compose_task_shows_it_and_the_volume_outlives_the_project(
    start: Start, context: Callable[..., Path], mount: Mount
) -> None:
    directory = context("FROM debian:bookworm-slim\n")
    (directory / "docker-compose.yaml").write_text(
        "services:\n  main:\n    volumes: [data:/data]\nvolumes:\n  data: {}\n"
    )
    sandbox = await start(environment_dir=directory, mounts=(mount,))
    done = await sandbox.exec(f"{SHOW}; touch {TARGET}/new; touch /data/new && echo own")
    assert done.stdout == "a\nb\nsub/c\nown\n"
    assert "Read-only" in done.stderr
    await sandbox.stop()
    assert docker("volume", "inspect", "--format", "{{.Name}}", volume_name(mount))


async def test_old_volumes_are_found_by_cleanup_and_one_in_use_stays(start: Start, mount: Mount) -> None:
    sandbox = await start(mounts=(mount,))
    name = volume_name(mount)
    async with DockerImages(3600.0) as old:
        assert name not in {item.name for item in await old.find()}
    await asyncio.sleep(1.1)
    async with DockerImages(0.0) as any_age:
        (leftover,) = (item for item in await any_age.find() if item.name == name)
        assert (leftover.kind, leftover.owner) == ("volume", "with agent-1.0")
        assert await any_age.remove([leftover]) == []
        await sandbox.stop()
        assert await any_age.remove([leftover]) == [leftover]


async def test_volumes_are_listed_with_the_images(
    start: Start, mount: Mount, capsys: pytest.CaptureFixture[str]
) -> None:
    await start(mounts=(mount,))
    await asyncio.sleep(1.1)
    assert await asyncio.to_thread(main, ["cleanup", "--images", "--max-age=0"]) == 0
    assert f"volume {volume_name(mount)}  with agent-1.0" in capsys.readouterr().out
