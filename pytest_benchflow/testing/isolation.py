"""What a sandbox may use and see: limits, and nothing of its neighbours."""

from __future__ import annotations

import asyncio
import time

import pytest

from pytest_benchflow.sandboxes import Backend, Limits, Sandbox
from pytest_benchflow.testing.base import SandboxSuite, count_sleepers


class IsolationTests(SandboxSuite):
    """What separates a sandbox from the rest."""

    async def test_memory_limit_kills_what_takes_more(self, backend: Backend) -> None:
        if not self.enforces_memory:
            pytest.skip("the backend enforces no memory limit here")
        async with self.started(backend, limits=Limits(memory_mb=128)) as sandbox:
            # Enough to be killed for, and no harm where nobody is.
            done = await sandbox.exec(
                "head -c 500000000 /dev/zero | tail >/tmp/end; exit ${PIPESTATUS[1]}", timeout_sec=120
            )
            assert done.return_code == 137
            assert (await sandbox.exec("echo on")).stdout == "on\n"

    async def test_process_limit_stops_a_fork_bomb_that_can_be_killed(self, backend: Backend) -> None:
        if not self.enforces_pids:
            pytest.skip("the backend enforces no limit of processes here")
        async with self.started(backend, limits=Limits(pids=64)) as sandbox:
            bomb = await sandbox.open_process(["bash", "-c", "for i in {1..200}; do sleep 600 & done"])
            async with asyncio.timeout(60):
                assert b"fork" in await bomb.read_stderr()
            await bomb.kill()
            assert await count_sleepers(sandbox) == 0

    async def test_cpu_limit_slows_down(self, backend: Backend) -> None:
        if not self.enforces_cpus:
            pytest.skip("the backend enforces no CPU limit here")
        async with self.started(backend, limits=Limits(cpus=0.2)) as sandbox:
            spin = "end=$((SECONDS + 3)); while ((SECONDS < end)); do :; done; times"
            done = await sandbox.exec(spin, timeout_sec=60)
            used = done.stdout.split()[0].removesuffix("s").partition("m")
            assert float(used[0]) * 60 + float(used[2]) < 1.8

    async def test_two_sandboxes_do_not_see_each_other(self, backend: Backend, token: str) -> None:
        async with self.started(backend, name="one") as one, self.started(backend, name="two") as two:
            assert one.id != two.id
            await one.exec(f"for d in / /tmp /etc /dev/shm; do echo x >$d/{token}; done", user=0)
            process = await one.open_process(["bash", "-c", f"exec -a {token} sleep 600"])
            seen = await two.exec("ls / /tmp /etc /dev/shm; cat /proc/[0-9]*/cmdline")
            assert token not in seen.stdout
            await process.kill()

    async def test_same_name_twice_is_two_sandboxes(self, backend: Backend) -> None:
        async with self.started(backend) as one, self.started(backend) as two:
            assert one.id != two.id
            await one.exec("echo one >/tmp/who", user=0)
            assert (await two.exec("cat /tmp/who")).return_code != 0

    async def test_host_processes_are_out_of_sight(self, sandbox: Sandbox, stranger: str) -> None:
        await self.require_isolation(sandbox, stranger)

    async def test_many_start_at_once(self, backend: Backend) -> None:
        began = time.monotonic()

        async def one(number: int) -> str:
            async with self.started(backend, name=f"many-{number}") as sandbox:
                return (await sandbox.exec(f"echo {number}")).stdout

        assert await asyncio.gather(*map(one, range(8))) == [f"{number}\n" for number in range(8)]
        assert time.monotonic() - began < self.start_timeout_sec
