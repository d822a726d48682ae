"""A runner that a test kills: it starts a sandbox full of busy processes, says `ready` and waits.

Run it as `python -m pytest_benchflow.testing.runner MODULE:FACTORY TOKEN`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module

from pytest_benchflow.sandboxes import Backend, SandboxSpec, configure_backend


def make_backend(factory: str, options: Mapping[str, str]) -> Backend:
    """Make the backend of `module:callable`, with values of its options."""
    module, _, name = factory.partition(":")
    backend: Backend = getattr(import_module(module), name)()
    configure_backend(backend, options, name=backend.name)
    return backend


async def main(factory: str, token: str) -> None:
    """Start processes in every way there is and never end."""
    backend = make_backend(factory, json.loads(os.environ.get("BF_CONFORMANCE_OPTIONS") or "{}"))
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
