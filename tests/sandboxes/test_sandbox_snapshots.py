"""Snapshots of the local sandbox: layers, owners, holes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sandbox_helpers import StartSandbox, needs_users, output

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend


@pytest.fixture
def layers(cache: Path) -> Path:
    return cache / "layers"


async def test_snapshot_on_top_of_an_image(start: StartSandbox, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian\nWORKDIR /notes\nENV A=b\nRUN echo 1 >one && echo 2 >two\n")
    sandbox = await start(environment_dir=tmp_path)
    await sandbox.exec("rm one; echo 3 >three; rm -rf /usr/games; mkdir /usr/games; chmod 700 /usr/games")
    image = await sandbox.snapshot()
    await sandbox.exec("rm -rf /notes/*")
    copy = await start(name="copy")
    await copy.restore(image)
    assert (
        await output(copy, "pwd; ls; echo $A; ls -A /usr/games; stat -c %a /usr/games")
        == "/notes\nthree\ntwo\nb\n700\n"
    )


async def test_files_that_deny_their_owner_are_kept(sandbox: Sandbox) -> None:
    await sandbox.exec("mkdir d && echo x >d/f && chmod 0 d/f d")
    image = await sandbox.snapshot()
    await sandbox.restore(image)
    assert await output(sandbox, "stat -c %a d d/f; cat d/f") == "0\n0\nx\n"


@needs_users
async def test_owners_are_kept(sandbox: Sandbox) -> None:
    await sandbox.exec(
        "echo x >file; chown nobody:daemon file; ln -s x link; chown -h daemon link; chown nobody /usr/share"
    )
    await sandbox.restore(await sandbox.snapshot())
    assert await output(sandbox, "stat -c %U:%G file link") == "nobody:daemon\ndaemon:root\n"


async def test_holes_take_no_room(sandbox: Sandbox, layers: Path) -> None:
    await sandbox.exec("truncate -s 20G holes; printf end >>holes")
    image = await sandbox.snapshot()
    assert sum(path.lstat().st_blocks for path in (layers / image.ref).rglob("*")) * 512 < 10_000_000
    await sandbox.restore(image)
    assert await output(sandbox, "stat -c %s holes; tail -c 3 holes") == f"{20 * 2**30 + 3}\nend"


async def test_snapshots_go_with_their_backend(cache: Path, layers: Path) -> None:
    backend = LocalBackend()
    sandbox = backend.create(SandboxSpec("box"))
    await sandbox.start()
    image = await sandbox.snapshot()
    assert (layers / image.ref).is_dir()
    await backend.aclose()
    assert not (layers / image.ref).exists()
    with pytest.raises(SandboxError, match="gone"):
        await sandbox.restore(image)


async def test_a_snapshot_that_fails_leaves_nothing_and_everything_runs_on(
    sandbox: Sandbox, layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(os.listdir(layers)) if layers.exists() else set()
    process = await sandbox.open_process(["cat"])
    with monkeypatch.context() as patch:
        patch.setattr("pytest_benchflow.sandboxes.local.layers._CODE", "raise OSError('disk full')")
        with pytest.raises(SandboxError, match="snapshot could not be written: OSError: disk full"):
            await sandbox.snapshot()
    assert set(os.listdir(layers)) == before
    await process.write(b"on\n")
    assert await process.read() == b"on\n"
    await process.kill()
