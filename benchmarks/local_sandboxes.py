"""Local sandboxes without a rollout around them: how fast one is there, and what many of them cost."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from statistics import median

import measure

from pytest_benchflow.sandboxes import Backend, SandboxRegistry, SandboxSpec

ROUNDS = 20
AT_ONCE = 64


def sandboxes(scratch: Path) -> None:
    """Print start to first command (bar 60 ms as root), 64 at once, and the memory of their helpers (bar 128 MB)."""
    asyncio.run(_sandboxes())


async def _sandboxes() -> None:
    backend = SandboxRegistry().create("local")
    await backend.preflight()
    try:
        await _first_command(backend, "warm")
        one = median([await _first_command(backend, f"one-{number}") for number in range(ROUNDS)])
        who = "root" if os.geteuid() == 0 else "an ordinary user"
        print(f"start to first command         {one * 1000:6.1f} ms as {who} (bar 60 as root)")
        await _many(backend)
    finally:
        await backend.aclose()


async def _first_command(backend: Backend, name: str) -> float:
    sandbox = backend.create(SandboxSpec(name))
    began = time.perf_counter()
    await sandbox.start()
    assert (await sandbox.exec("true")).return_code == 0
    took = time.perf_counter() - began
    await sandbox.stop()
    return took


async def _many(backend: Backend) -> None:
    boxes = [backend.create(SandboxSpec(f"many-{number}")) for number in range(AT_ONCE)]
    began = time.perf_counter()
    await asyncio.gather(*(box.start() for box in boxes))
    await asyncio.gather(*(box.exec("true") for box in boxes))
    took = time.perf_counter() - began
    helpers = measure.descendants(os.getpid())
    total = measure.memory_mb(helpers)
    began = time.perf_counter()
    await asyncio.gather(*(box.stop() for box in boxes))
    stopped = time.perf_counter() - began
    print(f"{AT_ONCE} at once, to first command   {took * 1000:6.0f} ms, stopped in {stopped * 1000:.0f} ms")
    print(f"memory of {len(helpers)} helper processes {total:6.1f} MB proportional (bar 128)")
