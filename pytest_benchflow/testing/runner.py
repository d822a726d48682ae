"""A runner that a test kills: it starts a sandbox full of busy processes, says `ready` and waits.

Run it as `python -m pytest_benchflow.testing.runner MODULE:FACTORY TOKEN`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module

from pytest_benchflow.sandboxes import Backend, SandboxSpec


async def main(factory: str, token: str) -> None:
    """Start processes in every way there is and never end."""
    module, _, name = factory.partition(":")
    backend: Backend = getattr(import_module(module), name)()
    await backend.preflight()
    spec = SandboxSpec(name="killed-runner", docker_image=os.environ.get("BF_CONFORMANCE_IMAGE") or None)
    sandbox = backend.create(spec)
    await sandbox.start()
    await sandbox.exec(f"(exec -a {token} sleep 600 >/dev/null 2>&1 &)")
    await sandbox.open_process(["bash", "-c", f"exec -a {token} sleep 600"])
    running = asyncio.ensure_future(sandbox.exec(f"exec -a {token} sleep 600"))
    await asyncio.sleep(1)
    print("ready", flush=True)
    await running


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
