"""Start and stop, and what is left when either goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import pytest

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Backend, Process, Sandbox
from pytest_benchflow.testing.base import SandboxSuite


class LifecycleTests(SandboxSuite):
    """What `start`, `stop` and the death of the runner do."""

    async def test_sandbox_has_an_identity_before_it_starts(self, backend: Backend) -> None:
        sandbox = backend.create(self.spec)
        assert isinstance(sandbox, Sandbox)
        assert sandbox.id
        await sandbox.stop()

    async def test_nothing_runs_before_start_or_after_stop(self, backend: Backend) -> None:
        sandbox = backend.create(self.spec)
        with pytest.raises(SandboxError, match="start"):
            await sandbox.exec("true")
        await sandbox.start()
        await sandbox.stop()
        with pytest.raises(SandboxError):
            await sandbox.exec("true")

    async def test_process_follows_the_protocol(self, sandbox: Sandbox) -> None:
        process = await sandbox.open_process(["cat"])
        assert isinstance(process, Process)
        await process.kill()

    async def test_stop_is_idempotent_and_ends_every_process(self, backend: Backend, token: str) -> None:
        async with self.started(backend) as sandbox:
            await sandbox.exec(f"(exec -a {token} sleep 600 >/dev/null 2>&1 &)")
            await sandbox.stop()
            await self.wait_until_gone(token)
            await sandbox.stop()
            await asyncio.gather(sandbox.stop(), sandbox.stop())

    async def test_stop_does_not_wait_for_a_running_command(self, backend: Backend, token: str) -> None:
        async with self.started(backend) as sandbox:
            running = asyncio.ensure_future(sandbox.exec(f"exec -a {token} sleep 600"))
            await asyncio.sleep(0.5)
            async with asyncio.timeout(20):
                await sandbox.stop()
                done = await asyncio.gather(running, return_exceptions=True)
            assert isinstance(done[0], SandboxError) or done[0].return_code == 137  # type: ignore[union-attr]
            await self.wait_until_gone(token)

    async def test_cancelled_start_leaves_nothing(self, backend: Backend) -> None:
        for delay in (0.0, 0.002, 0.01, 0.05, 0.2):
            sandbox = backend.create(self.spec)
            starting = asyncio.ensure_future(sandbox.start())
            await asyncio.sleep(delay)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await sandbox.stop()
            with pytest.raises(SandboxError):
                await sandbox.exec("true")

    async def test_closing_the_backend_ends_its_sandboxes(self, token: str) -> None:
        backend = self.make_backend()
        await backend.preflight()
        sandbox = backend.create(self.spec)
        await sandbox.start()
        await sandbox.exec(f"(exec -a {token} sleep 600 >/dev/null 2>&1 &)")
        await backend.aclose()
        await backend.aclose()
        await self.wait_until_gone(token)

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
    async def test_everything_ends_when_the_runner_is_killed(self, number: signal.Signals, token: str) -> None:
        runner = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "pytest_benchflow.testing.runner", self.factory, token),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # pytest lets test modules import what lies beside them; the other process has to find the factory too.
            env={
                **os.environ,
                "BF_CONFORMANCE_IMAGE": self.spec.docker_image or "",
                "BF_CONFORMANCE_OPTIONS": json.dumps(dict(self.options)),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )
        assert runner.stdout is not None
        try:
            async with asyncio.timeout(self.start_timeout_sec):
                assert await runner.stdout.readline() == b"ready\n"
            assert self.host_processes(token), "the sandbox's processes are not visible on this machine"
            runner.send_signal(number)
            await runner.wait()
            await self.wait_until_gone(token)
        finally:
            if runner.returncode is None:
                runner.kill()
                await runner.wait()
