"""A daemon that restarts, dies, has no bridge or is reached over TCP: tested on one of our own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.sandboxes.docker import DockerBackend
from pytest_benchflow.sandboxes.docker.address import Address

pytestmark = pytest.mark.skipif(
    shutil.which("dockerd") is None or os.geteuid() != 0, reason="a daemon of our own needs dockerd and root"
)
IMAGE = "bf-test/busybox:1"
SPEC = SandboxSpec("daemon", docker_image=IMAGE)


class Daemon:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.unix = f"unix://{directory}/docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        top = self.directory
        # A daemon that was killed leaves these, and the next one would believe them.
        for name in ("pid", "exec/containerd/containerd.pid"):
            (top / name).unlink(missing_ok=True)
        words = ["--host", self.unix, "--bridge", "none", "--iptables=false"]
        words += ["--data-root", f"{top}/data", "--exec-root", f"{top}/exec", "--pidfile", f"{top}/pid"]
        with (top / "log").open("ab") as log:
            # In namespaces of its own: a daemon without a bridge takes the bridge of its neighbour away.
            command = ["unshare", "--net", "--mount", "dockerd", *words]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 60
        while self.docker("info", check=False).returncode:
            assert time.monotonic() < deadline, (top / "log").read_text()[-2000:]
            time.sleep(0.2)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout=60)
            self.process = None

    def containers(self) -> list[str]:
        """List all containers that exist: an engine that crashed may also list records of what it has removed."""
        listed = self.docker("ps", "-aq", "--no-trunc").stdout.decode().split()
        return [name for name in listed if self.docker("inspect", name, check=False).returncode == 0]

    def docker(self, *words: str, check: bool = True, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["docker", "-H", self.unix, *words], capture_output=True, check=check, input=stdin)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="bfd", ignore_cleanup_errors=True) as directory:
        daemon = Daemon(Path(directory))
        daemon.start()
        saved = subprocess.run(["docker", "save", IMAGE], capture_output=True, check=True).stdout
        daemon.docker("load", stdin=saved)
        yield daemon
        daemon.stop()


class _Forward(socketserver.BaseRequestHandler):
    """Copies bytes between a TCP connection and the daemon's socket, each half until it ends."""

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.connect(self.server.target)  # type: ignore[attr-defined]
            back = threading.Thread(target=_copy, args=(daemon, self.request))
            back.start()
            _copy(self.request, daemon)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    target = ""


@pytest.fixture
def tcp(daemon: Daemon) -> Iterator[Address]:
    """The daemon, reached over TCP."""
    with _Server(("127.0.0.1", 0), _Forward) as server:
        server.target = f"{daemon.directory}/docker.sock"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Address(f"tcp://127.0.0.1:{server.server_address[1]}")
        server.shutdown()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["restart", "crash"])
async def test_daemon_that_goes_and_comes_back(daemon: Daemon, number: signal.Signals) -> None:
    backend = DockerBackend(address=Address(daemon.unix))
    await backend.preflight()
    before = backend.create(SPEC)
    await before.start()
    running = asyncio.ensure_future(before.exec("sleep 600"))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(daemon.stop, number)
    async with asyncio.timeout(20):
        with pytest.raises(SandboxError, match="daemon"):
            await running
        with pytest.raises(SandboxError):
            await before.exec("true")
        with pytest.raises(SandboxError, match="no Docker daemon answers"):
            await backend.create(SPEC).start()
    await asyncio.to_thread(daemon.start)
    after = backend.create(SPEC)
    await after.start()
    assert (await after.exec("echo on")).stdout == "on\n"
    await before.stop()
    await backend.aclose()
    assert not daemon.containers()


async def test_engine_without_a_bridge_gives_the_host_network(daemon: Daemon) -> None:
    backend = DockerBackend(address=Address(daemon.unix))
    await backend.preflight()
    sandbox = backend.create(SPEC)
    await sandbox.start()
    mode = daemon.docker("inspect", "-f", "{{.HostConfig.NetworkMode}}", sandbox.id).stdout
    assert mode == b"host\n"
    await backend.aclose()


async def test_daemon_over_tcp(daemon: Daemon, tcp: Address, tmp_path: Path) -> None:
    backend = DockerBackend(address=tcp)
    await backend.preflight()
    sandbox = backend.create(SPEC)
    await sandbox.start()
    (tmp_path / "in").write_bytes(b"x" * 9_000_000)
    await sandbox.upload_file(tmp_path / "in", "/file")
    process = await sandbox.open_process(["wc", "-c"])
    await process.write(b"y" * 1000)
    await process.close_stdin()
    assert (await process.read()).strip() == b"1000"
    assert (await sandbox.exec("wc -c </file")).stdout.strip() == "9000000"
    await backend.aclose()
    assert not daemon.containers()


async def test_silent_runner_loses_its_container(daemon: Daemon, tcp: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_benchflow.sandboxes.docker.starter.REMOTE_LEASE_SEC", 2)
    backend = DockerBackend(address=tcp)
    await backend.preflight()
    alive, silent = backend.create(SPEC), backend.create(SPEC)
    await asyncio.gather(alive.start(), silent.start())
    for task in silent._container.channel._tasks[1:]:  # type: ignore[union-attr]
        task.cancel()
    await asyncio.sleep(5)
    assert (await alive.exec("echo on")).stdout == "on\n"
    names = daemon.docker("ps", "-a", "--format", "{{.Names}}").stdout.decode().split()
    assert names == [alive.id]
    await backend.aclose()
