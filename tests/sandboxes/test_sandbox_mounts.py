"""Mounts of the local sandbox."""

from __future__ import annotations

from pathlib import Path

from sandbox_helpers import StartSandbox, needs_users

from pytest_benchflow.sandboxes import Mount
from pytest_benchflow.sandboxes.local.guest import libc


async def test_a_link_in_the_environment_cannot_lead_a_mount_to_the_host(start: StartSandbox, tmp_path: Path) -> None:
    trap, source, environment = tmp_path / "trap", tmp_path / "source", tmp_path / "environment"
    for path in (trap, source, environment):
        path.mkdir(mode=0o777)
    (source / "file").write_text("content")
    (environment / "Dockerfile").write_text(f"FROM debian\nRUN mkdir -p {trap} && ln -s {trap} /trap\n")
    sandbox = await start(environment_dir=environment, mounts=(Mount(source, "/trap/in", "key"),))
    assert (await sandbox.exec(f"cat {trap}/in/file")).stdout == "content"
    assert not list(trap.iterdir())


@needs_users
async def test_what_is_mounted_in_a_mount_is_read_only_too(start: StartSandbox, tmp_path: Path) -> None:
    inner = tmp_path / "source" / "inner"
    inner.mkdir(parents=True)
    libc.mount("tmpfs", str(inner), "tmpfs")
    try:
        sandbox = await start(mounts=(Mount(tmp_path / "source", "/shown", "key"),))
        assert "Read-only" in (await sandbox.exec("touch /shown/inner/file")).stderr
        assert not list(inner.iterdir())
    finally:
        libc.detach(str(inner))
