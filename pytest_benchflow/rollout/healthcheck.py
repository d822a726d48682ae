"""Wait until a task's environment says that it is ready."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pytest_benchflow.errors import BenchflowError, Category

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import ExecResult, Sandbox
    from pytest_benchflow.tasks import Healthcheck


async def wait_until_healthy(sandbox: Sandbox, check: Healthcheck) -> None:
    """Probe until one try succeeds; tries that fail within the start period do not count."""
    started = time.monotonic()
    counted = 0
    while True:
        in_start_period = time.monotonic() - started < check.start_period_sec
        failure = await _probe(sandbox, check)
        if failure is None:
            return
        if not in_start_period:
            counted += 1
            if counted >= max(1, check.retries):
                raise BenchflowError(
                    f"healthcheck {check.command!r} failed {counted} times: {failure}",
                    category=Category.HEALTHCHECK,
                )
        await asyncio.sleep(check.start_interval_sec if in_start_period else check.interval_sec)


async def _probe(sandbox: Sandbox, check: Healthcheck) -> str | None:
    try:
        done = await sandbox.exec(check.command, timeout_sec=check.timeout_sec)
    except TimeoutError:
        return f"no answer within {check.timeout_sec:g} s"
    return None if done.return_code == 0 else _said(done)


def _said(done: ExecResult) -> str:
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    return f"exit status {done.return_code}" + (f", {last[0][:200]}" if last else "")
