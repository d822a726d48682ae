"""Mounts: a host directory that every sandbox may read and none can change."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Backend, Mount
from pytest_benchflow.testing.base import SandboxSuite

_TARGET = "/opt/benchflow-conformance/deep/bundle"


class MountTests(SandboxSuite):
    """What `SandboxSpec.mounts` promises."""

    @pytest_asyncio.fixture(loop_scope="class")
    async def mount(self, backend: Backend, tmp_path: Path) -> AsyncIterator[Mount]:
        """A directory of files, a program and links, to be shown in sandboxes."""
        if not backend.capabilities.mounts:
            pytest.skip("the backend cannot mount host directories")
        top = tmp_path / "source"
        (top / "bin").mkdir(parents=True)
        (top / "empty").mkdir()
        (top / "file").write_text("content\n")
        (top / "bin" / "program").write_text('#!/bin/sh\necho "ran with $1"\n')
        (top / "bin" / "program").chmod(0o755)
        (top / "link").symlink_to("bin/program")
        (top / "out").symlink_to("/etc/hostname")
        for path in (top, top / "bin", top / "empty"):
            path.chmod(0o755)
        (top / "file").chmod(0o644)
        mount = Mount(top, _TARGET, f"conformance-{uuid.uuid4().hex[:12]}")
        yield mount
        await self.forget(mount)

    async def forget(self, mount: Mount) -> None:
        """Remove what the backend keeps of a mount beyond its sandboxes; override it where that is anything."""

    async def test_every_user_reads_what_is_mounted(self, backend: Backend, mount: Mount) -> None:
        async with self.started(backend, mounts=(mount,)) as sandbox:
            for user in (0, "nobody") if sandbox.capabilities.users else (0,):
                done = await sandbox.exec(f"cat {_TARGET}/file && ls -d {_TARGET}/empty", user=user)
                assert (done.return_code, done.stdout) == (0, f"content\n{_TARGET}/empty\n")

    async def test_nobody_writes_to_what_is_mounted(self, backend: Backend, mount: Mount) -> None:
        async with self.started(backend, mounts=(mount,)) as sandbox:
            for command in (
                "touch new",
                "echo more >>file",
                "rm file",
                "mv file other",
                "chmod 777 file",
                "mkdir new",
                "mount -o remount,rw .",
            ):
                done = await sandbox.exec(command, user=0, cwd=_TARGET)
                assert done.return_code != 0, command
            # It may be allowed to say that it succeeded, where there is no other user to give a file to.
            owner = await sandbox.exec("stat -c %u file; chown 1 file; stat -c %u file", user=0, cwd=_TARGET)
            assert len(set(owner.stdout.split())) == 1
            assert (await sandbox.exec("cat file; rm -rf -- bin; bin/program", user=0, cwd=_TARGET)).stdout == (
                "content\nran with \n"
            )
        assert (mount.source / "file").read_text() == "content\n"

    async def test_programs_and_links_stay_what_they_are(self, backend: Backend, mount: Mount) -> None:
        async with self.started(backend, mounts=(mount,)) as sandbox:
            for user in (0, "nobody") if sandbox.capabilities.users else (0,):
                done = await sandbox.exec(
                    "bin/program 1; ./link 2; readlink link out; stat -c %a bin/program file", user=user, cwd=_TARGET
                )
                assert done.stdout.split("\n")[:4] == ["ran with 1", "ran with 2", "bin/program", "/etc/hostname"]
                assert done.stdout.split("\n")[4:] == ["755", "644", ""]
            process = await sandbox.open_process([f"{_TARGET}/bin/program", "pipe"])
            assert await process.read() == b"ran with pipe\n"
            await process.wait()

    async def test_sandboxes_share_a_mount_and_start_with_it_at_once(self, backend: Backend, mount: Mount) -> None:
        async def one(number: int) -> str:
            async with self.started(backend, name=f"share-{number}", mounts=(mount,)) as sandbox:
                return (await sandbox.exec(f"cat {_TARGET}/file")).stdout

        assert await asyncio.gather(*map(one, range(3))) == ["content\n"] * 3

    async def test_several_mounts_with_contents_of_their_own(
        self, backend: Backend, mount: Mount, tmp_path: Path
    ) -> None:
        other = replace(mount, source=tmp_path / "other", target="/srv/other", key=f"{mount.key}-other")
        other.source.mkdir()
        (other.source / "file").write_text("other\n")
        try:
            async with self.started(backend, mounts=(mount, other)) as sandbox:
                assert (await sandbox.exec(f"cat {_TARGET}/file /srv/other/file")).stdout == "content\nother\n"
        finally:
            await self.forget(other)

    async def test_what_is_written_beside_a_mount_stays_in_the_sandbox(self, backend: Backend, mount: Mount) -> None:
        async with self.started(backend, mounts=(mount,)) as sandbox:
            assert (await sandbox.exec("echo x >beside", user=0, cwd=f"{_TARGET}/..")).return_code == 0
        assert sorted(path.name for path in mount.source.parent.iterdir()) == ["source"]

    async def test_missing_source_is_an_error_that_names_it(self, backend: Backend, mount: Mount) -> None:
        missing = replace(mount, source=mount.source / "nothing" / "here")
        sandbox = backend.create(replace(self.spec, mounts=(missing,)))
        try:
            with pytest.raises(SandboxError, match="nothing/here"):
                await sandbox.start()
        finally:
            await sandbox.stop()
