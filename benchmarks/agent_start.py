"""From a sandbox that is ready to the agent's first answer, beside the same program started on the host."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from pytest_benchflow.agents import AcpAgent, AgentRegistry, Bundle, BundleStore
from pytest_benchflow.core.errors import BenchflowError
from pytest_benchflow.sandboxes import Backend, SandboxRegistry, SandboxSpec

AGENTS = ("gemini", "claude-agent-acp", "codex-acp", "opencode", "pi-acp")
IMAGES = {"local": None, "docker": "debian:bookworm-slim"}
ROUNDS = 3
_PARAMS = {"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}}}
REQUEST = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _PARAMS}).encode() + b"\n"
TIMEOUT_SEC = 120.0


def start(scratch: Path) -> None:
    """Print, for each agent and sandbox, what the sandbox adds to the agent's own start (bar 1 s)."""
    asyncio.run(_start(scratch))


async def _start(scratch: Path) -> None:
    backends = [backend for name in IMAGES if (backend := await _opened(name))]
    store, registry = BundleStore(), AgentRegistry()
    try:
        for name in AGENTS:
            agent = registry.get(name)
            assert isinstance(agent, AcpAgent)
            spec = agent.installation.spec
            assert spec is not None
            bundle = await store.provide(spec)
            await _agent(bundle, list(agent.manifest.launch), backends, scratch)
    finally:
        for backend in backends:
            await backend.aclose()


async def _opened(name: str) -> Backend | None:
    backend = SandboxRegistry().create(name)
    try:
        await backend.preflight()
    except BenchflowError as error:
        print(f"{name}: {error}")
        return None
    return backend


async def _agent(bundle: Bundle, launch: list[str], backends: list[Backend], scratch: Path) -> None:
    """Measure in turns, so that a machine that gets busier is busier for all."""
    host: list[float] = []
    inside: dict[str, list[float]] = {backend.name: [] for backend in backends}
    ready: dict[str, list[float]] = {backend.name: [] for backend in backends}
    # The first start of each only reads the files into memory.
    for number in range(ROUNDS + 1):
        host.append(await _on_host(bundle, launch, scratch / f"{bundle.spec.agent}-{number}"))
        for backend in backends:
            put, answered = await _in_sandbox(backend, bundle, launch)
            ready[backend.name].append(put)
            inside[backend.name].append(put + answered)
    own = median(host[1:])
    print(f"{bundle.spec.agent} {bundle.spec.version}: {own:.2f} s on the host")
    for name, times in inside.items():
        took, put = median(times[1:]), median(ready[name][1:])
        print(f"  {name:<8} {took:6.2f} s, {put * 1000:.0f} ms of it until installed   {took - own:+.2f} s (bar +1.00)")


async def _on_host(bundle: Bundle, launch: list[str], home: Path) -> float:
    home.mkdir()
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(bundle.path / "bin" / launch[0], *launch[1:]),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=home,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        start_new_session=True,
        limit=1 << 24,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdout = process.stdout
    try:
        process.stdin.write(REQUEST)
        await _answer(lambda: stdout.read(65536))
        return time.perf_counter() - began
    finally:
        os.killpg(process.pid, 9)
        await process.wait()


async def _in_sandbox(backend: Backend, bundle: Bundle, launch: list[str]) -> tuple[float, float]:
    """Return the seconds until the agent is installed, and from there to its answer."""
    sandbox = backend.create(SandboxSpec("start", docker_image=IMAGES[backend.name], mounts=(bundle.mount(),)))
    try:
        await sandbox.start()
        began = time.perf_counter()
        prefix = await bundle.deploy(sandbox)
        installed = time.perf_counter()
        argv = [f"{prefix}/bin/{launch[0]}", *launch[1:]]
        process = await sandbox.open_process(argv, user="root", cwd="/root", env={"HOME": "/root"})
        await process.write(REQUEST)
        await _answer(process.read)
        answered = time.perf_counter()
        await process.kill()
        return installed - began, answered - installed
    finally:
        await sandbox.stop()


async def _answer(read: Callable[[], Awaitable[bytes]]) -> None:
    """Wait for the answer to the request."""
    seen = b""
    async with asyncio.timeout(TIMEOUT_SEC):
        while b'"id":0' not in seen.replace(b" ", b""):
            data = await read()
            assert data, f"it ended: {seen[-500:]!r}"
            seen += data
