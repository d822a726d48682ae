"""Snapshots: a sandbox's files at one moment, for as many sandboxes as want them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pytest_benchflow.core.errors import SandboxError, SandboxSnapshotNotSupported
from pytest_benchflow.sandboxes import Backend, Sandbox, SandboxImage
from pytest_benchflow.testing.base import SandboxSuite, count_sleepers

#: A file of every kind, and for each way a file of the image can change, one that did.
_WRITE = """
set -e
mkdir -p /app/deep/er /app/empty
echo one >/app/deep/er/file
chmod 640 /app/deep/er/file
ln /app/deep/er/file /app/deep/second
ln -s deep/er/file /app/link
mkfifo /app/pipe
printf '\\0\\1' >'/app/odd  name'
chmod 4711 '/app/odd  name'
chmod 1777 /app/empty
truncate -s 4M /app/holes
echo more >>/etc/passwd
rm /etc/issue
rm -rf /etc/skel
mkdir /etc/skel
echo mine >/etc/skel/new
touch -d @1234567890 /app/deep/er /etc/passwd
"""
_LOOK = """
cd /app
stat -c '%n %a %s %U %F' deep/er/file link pipe 'odd  name' holes
stat -c '%n %a %U %F' deep/er empty /etc/skel
stat -c '%h' deep/second
stat -c '%Y' deep/er /etc/passwd
cat deep/second link
tail -n 1 /etc/passwd
ls -A /etc/skel
[ -e /etc/issue ] || echo gone
"""


class SnapshotTests(SandboxSuite):
    """What `snapshot` and `restore` promise where `capabilities.snapshots` says so."""

    @pytest_asyncio.fixture(loop_scope="class")
    async def original(self, sandbox: Sandbox, stranger: str) -> AsyncIterator[Sandbox]:
        """A started sandbox that can be kept."""
        if not sandbox.capabilities.snapshots:
            pytest.skip("the backend has no snapshots")
        await self.require_isolation(sandbox, stranger)
        yield sandbox

    async def test_snapshots_work_or_are_refused_by_name(self, backend: Backend, sandbox: Sandbox) -> None:
        if sandbox.capabilities.snapshots:
            image = await sandbox.snapshot("a name: of/any kind")
            assert image.provider
            assert image.ref
        else:
            with pytest.raises(SandboxSnapshotNotSupported):
                await sandbox.snapshot()
            with pytest.raises(SandboxSnapshotNotSupported):
                await sandbox.restore(SandboxImage(backend.name, "any"))

    async def test_every_kind_of_change_comes_back(self, backend: Backend, original: Sandbox) -> None:
        assert (await original.exec(_WRITE, user=0)).stderr == ""
        before = (await original.exec(_LOOK, user=0)).stdout
        image = await original.snapshot("all kinds")
        copy = backend.create(self.spec)
        try:
            await copy.restore(image)
            assert (await copy.exec(_LOOK, user=0)).stdout == before
            assert before.splitlines()[-2:] == ["new", "gone"]
        finally:
            await copy.stop()

    async def test_restoring_goes_back_in_time_and_ends_what_runs(self, original: Sandbox) -> None:
        await original.exec("echo before >/app/file; sleep 600 >/dev/null 2>&1 &")
        image = await original.snapshot()
        assert await count_sleepers(original) == 1
        await original.exec("echo after >/app/file; touch /app/other; rm -rf /etc/skel")
        await original.restore(image)
        assert (await original.exec("cat /app/file; ls /app; ls -d /etc/skel")).stdout == "before\nfile\n/etc/skel\n"
        assert await count_sleepers(original) == 0

    async def test_copies_and_the_original_go_separate_ways(self, backend: Backend, original: Sandbox) -> None:
        await original.exec("echo same >/app/file")
        image = await original.snapshot()
        copies = [backend.create(self.spec) for _ in range(3)]
        try:
            await asyncio.gather(*(copy.restore(image) for copy in copies))
            everyone = [original, *copies]
            await asyncio.gather(*(one.exec(f"echo {n} >>/app/file") for n, one in enumerate(everyone)))
            found = [(await one.exec("cat /app/file")).stdout for one in everyone]
            assert found == [f"same\n{n}\n" for n in range(len(everyone))]
        finally:
            await asyncio.gather(*(copy.stop() for copy in copies))

    async def test_snapshot_of_a_restored_sandbox(self, backend: Backend, original: Sandbox) -> None:
        await original.exec("echo 1 >/app/one; echo 1 >/app/two")
        await original.restore(await original.snapshot())
        await original.exec("rm /app/one; echo 2 >>/app/two")
        second = await original.snapshot()
        copy = backend.create(self.spec)
        try:
            await copy.restore(second)
            assert (await copy.exec("ls /app; cat /app/two")).stdout == "two\n1\n2\n"
        finally:
            await copy.stop()

    async def test_programs_go_on_after_a_snapshot(self, original: Sandbox) -> None:
        process = await original.open_process(["cat"])
        await original.snapshot()
        await process.write(b"still here\n")
        assert await process.read() == b"still here\n"
        await process.close_stdin()
        assert await process.wait() == 0

    async def test_what_cannot_be_kept_or_restored_is_an_error(self, backend: Backend, original: Sandbox) -> None:
        for image in (SandboxImage("elsewhere", "x"), SandboxImage(backend.name, "no-such-image")):
            with pytest.raises(SandboxError, match="image"):
                await original.restore(image)
        assert (await original.exec("echo on")).stdout == "on\n"
        await original.stop()
        with pytest.raises(SandboxError, match="start"):
            await original.snapshot()
