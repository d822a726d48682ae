"""Snapshots are images: they hold no variable of the sandbox, and none is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_benchflow.cli.main import main
from pytest_benchflow.core.errors import SandboxError, SandboxSnapshotNotSupported
from pytest_benchflow.sandboxes import Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.docker.backend import DockerBackend

IMAGE = "bf-test/busybox:1"
KILLED_RUNNER = """
import asyncio, os, sys
from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.sandboxes.docker import DockerBackend, container_spec

async def main():
    backend = DockerBackend()
    await backend.preflight()
    sandbox = backend.create(SandboxSpec("killed", docker_image="bf-test/busybox:1"))
    await sandbox.start()
    print((await sandbox.snapshot()).ref, flush=True)
    os.kill(os.getpid(), 9)

container_spec._machine = lambda: sys.argv[1]
asyncio.run(main())
"""


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, check=True, text=True).stdout.strip()


def exists(reference: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", reference], capture_output=True, check=False).returncode == 0


async def test_variables_of_the_sandbox_are_not_in_the_image(start: Callable[..., object]) -> None:
    env = {"SECRET_KEY": "hunter2", "PATH": "/mine:/bin", "PLAIN": "x"}
    sandbox: Sandbox = await start(env=env, docker_image=IMAGE)  # type: ignore[misc]
    await sandbox.exec("true", env={"OTHER_KEY": "hunter3"})
    image = await sandbox.snapshot()
    facts = docker("image", "inspect", image.ref) + docker("history", "--no-trunc", image.ref)
    assert "hunter" not in facts
    own, kept = (json.loads(docker("image", "inspect", name))[0]["Config"]["Env"] for name in (IMAGE, image.ref))
    # Podman adds variables of its own.
    assert not {line.partition("=")[0] for line in set(kept) ^ set(own)} & {*env, "OTHER_KEY"}
    await sandbox.restore(image)
    assert (await sandbox.exec("echo $SECRET_KEY $PATH")).stdout == "hunter2 /mine:/bin\n"


async def test_snapshots_go_with_their_backend() -> None:
    backend = DockerBackend()
    await backend.preflight()
    sandbox = backend.create(SandboxSpec("test", docker_image=IMAGE))
    await sandbox.start()
    image = await sandbox.snapshot("first")
    await sandbox.restore(image)
    second = await sandbox.snapshot()
    assert exists(image.ref)
    await backend.aclose()
    assert not exists(image.ref)
    assert not exists(second.ref)


async def test_snapshot_that_is_gone_never_becomes_the_task_image(start: Callable[..., object]) -> None:
    sandbox: Sandbox = await start(docker_image=IMAGE)  # type: ignore[misc]
    image = await sandbox.snapshot()
    docker("image", "rm", image.ref)
    with pytest.raises(SandboxError, match=f"{image.ref} is gone"):
        await sandbox.restore(image)
    assert (await sandbox.exec("echo on")).stdout == "on\n"


async def test_working_directory_and_user_of_the_image_stay(
    start: Callable[..., object], context: Callable[..., Path]
) -> None:
    directory = context(f"FROM {IMAGE}\nWORKDIR /work\nUSER 1000\n")
    sandbox: Sandbox = await start(environment_dir=directory)  # type: ignore[misc]
    await sandbox.restore(await sandbox.snapshot())
    assert (await sandbox.exec("pwd; id -u")).stdout == "/work\n1000\n"


def test_what_a_killed_run_left_is_found_and_removed(own_machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [sys.executable, "-c", KILLED_RUNNER, own_machine]
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    reference = run.stdout.strip()
    assert exists(reference), run.stderr
    labels = json.loads(docker("image", "inspect", reference))[0]["Config"]["Labels"]
    assert main(["cleanup", "--run", labels["benchflow.run"]]) == 0
    assert f"image {reference}  of killed in run" in capsys.readouterr().out
    assert main(["cleanup", "--yes", "--run", labels["benchflow.run"]]) == 0
    assert not exists(reference)


async def test_several_containers_have_no_snapshot(backend: DockerBackend, tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yaml").write_text(f"services:\n  main:\n    image: {IMAGE}\n")
    sandbox = backend.create(SandboxSpec("several", environment_dir=tmp_path))
    assert not sandbox.capabilities.snapshots
    with pytest.raises(SandboxSnapshotNotSupported, match="several containers"):
        await sandbox.snapshot()
