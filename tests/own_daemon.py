"""A second Docker daemon, for tests that stop it or reach it in other ways than the usual one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

IMAGE = "bf-test/busybox:1"
TLS_PORT = 2376
_WITH_LOOPBACK = """
import fcntl, os, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 1))
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Daemon:
    """Runs dockerd in a directory of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options
        self.unix = f"unix://{directory}/docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        top = self.directory
        # A daemon that was killed leaves these, and the next one would believe them.
        for name in ("pid", "exec/containerd/containerd.pid"):
            (top / name).unlink(missing_ok=True)
        words = ["--host", self.unix, "--bridge", "none", "--iptables=false", *self.options]
        words += ["--data-root", f"{top}/data", "--exec-root", f"{top}/exec", "--pidfile", f"{top}/pid"]
        with (top / "log").open("ab") as log:
            # In namespaces of its own: a daemon without a bridge takes the bridge of its neighbour away.
            command = ["unshare", "--net", "--mount", sys.executable, "-c", _WITH_LOOPBACK, "dockerd", *words]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 60
        while self.docker("info", check=False).returncode:
            assert time.monotonic() < deadline, (top / "log").read_text()[-2000:]
            time.sleep(0.2)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it with a signal; idempotent."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout=60)
            self.process = None

    def containers(self) -> list[str]:
        """List all containers that exist: an engine that crashed may also list records of what it has removed."""
        listed = self.docker("ps", "-aq", "--no-trunc").stdout.decode().split()
        return [name for name in listed if self.docker("inspect", name, check=False).returncode == 0]

    def docker(self, *words: str, check: bool = True, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run a docker command on it."""
        return subprocess.run(["docker", "-H", self.unix, *words], capture_output=True, check=check, input=stdin)

    def connect_unix(self) -> socket.socket:
        """Open a connection to its socket."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"{self.directory}/docker.sock")
        return connection

    def connect_tls(self) -> socket.socket:
        """Open a connection to its encrypted port; the calling thread stays in the daemon's network."""
        assert self.process is not None
        with open(f"/proc/{self.process.pid}/ns/net") as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
        return socket.create_connection(("127.0.0.1", TLS_PORT))


@contextlib.contextmanager
def running(*options: str) -> Iterator[Daemon]:
    """Have a daemon that knows one small image."""
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="bfd", ignore_cleanup_errors=True) as directory:
        daemon = Daemon(Path(directory), *options)
        daemon.start()
        try:
            saved = subprocess.run(["docker", "save", IMAGE], capture_output=True, check=True).stdout
            daemon.docker("load", stdin=saved)
            yield daemon
        finally:
            daemon.stop()


class _Forward(socketserver.BaseRequestHandler):
    """Copies bytes between a connection and the daemon, each half until it ends."""

    def handle(self) -> None:
        with self.server.connect() as daemon:  # type: ignore[attr-defined]
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


@contextlib.contextmanager
def forwarded(connect: Callable[[], socket.socket]) -> Iterator[int]:
    """Give a port of this machine that leads to a daemon."""
    with _Server(("127.0.0.1", 0), _Forward) as server:
        server.connect = connect  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def make_certificates(directory: Path) -> None:
    """Write ca.pem, and a certificate and key that both sides can use."""
    subject = ["-subj", "/CN=bf-test"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    authority = ["-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial"]
    (directory / "extensions").write_text("subjectAltName = IP:127.0.0.1\nextendedKeyUsage = serverAuth,clientAuth\n")
    for words in (
        ["req", "-x509", *key, *subject, "-keyout", "ca-key.pem", "-out", "ca.pem"],
        ["req", *key, "-subj", "/CN=127.0.0.1", "-keyout", "key.pem", "-out", "request.pem"],
        ["x509", "-req", "-in", "request.pem", *authority, "-extfile", "extensions", "-out", "cert.pem"],
    ):
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)


def can_run() -> bool:
    """Return whether a daemon of our own can be had here."""
    from shutil import which

    return which("dockerd") is not None and os.geteuid() == 0
