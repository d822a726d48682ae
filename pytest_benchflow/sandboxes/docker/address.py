"""Where the Docker daemon listens: DOCKER_HOST, the current context, or the usual sockets."""

from __future__ import annotations

import json
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pytest_benchflow.errors import SandboxError

_DEFAULT = "/var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class Address:
    """One daemon."""

    url: str
    """As DOCKER_HOST would have it."""
    tls_dir: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether a connection to it ends for certain when this process does."""
        return self.url.startswith("unix://")

    @property
    def socket_path(self) -> str:
        """The path of a local daemon's socket."""
        return self.url.removeprefix("unix://")

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Where a remote daemon listens."""
        parts = urlsplit(self.url)
        return parts.hostname or "localhost", parts.port or (2376 if self.tls_dir else 2375)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return what a connection needs to be encrypted, if it is to be."""
        if self.tls_dir is None:
            return None
        context = ssl.create_default_context(cafile=str(self.tls_dir / "ca.pem"))
        context.load_cert_chain(self.tls_dir / "cert.pem", self.tls_dir / "key.pem")
        return context


def find_address() -> Address:
    """Return the daemon that the docker command would use here."""
    url = os.environ.get("DOCKER_HOST") or _context_host() or f"unix://{_usual_socket()}"
    if not url.startswith(("unix://", "tcp://")):
        raise SandboxError(
            f"the Docker daemon at {url} cannot be used: only unix:// and tcp:// addresses can",
            advice="forward its socket and set DOCKER_HOST=unix://PATH",
            retryable=False,
        )
    if url.startswith("unix://") or not os.environ.get("DOCKER_TLS_VERIFY"):
        return Address(url)
    return Address(url, Path(os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker"))


def daemon_answers(timeout_sec: float = 2.0) -> bool:
    """Say whether a daemon answers here; imports nothing heavy and is immediate where there is no socket."""
    try:
        with _connect(find_address(), timeout_sec) as sock:
            sock.sendall(b"GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n")
            return sock.recv(64).startswith(b"HTTP/1.1 200")
    except (OSError, SandboxError):
        return False


def probe(address: Address, timeout_sec: float) -> None:
    """Raise OSError if nobody listens at a local address, which costs next to nothing to find out."""
    if address.is_local:
        _connect(address, timeout_sec).close()


def _connect(address: Address, timeout_sec: float) -> socket.socket:
    if not address.is_local:
        sock = socket.create_connection(address.host_and_port, timeout_sec)
        context = address.ssl_context()
        return sock if context is None else context.wrap_socket(sock, server_hostname=address.host_and_port[0])
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(timeout_sec)
    try:
        sock.connect(address.socket_path)
    except BaseException:
        sock.close()
        raise
    return sock


def _usual_socket() -> str:
    rootless = f"{os.environ.get('XDG_RUNTIME_DIR', '/nonexistent')}/docker.sock"
    return rootless if not os.path.exists(_DEFAULT) and os.path.exists(rootless) else _DEFAULT


def _context_host() -> str | None:
    """Return the endpoint of the context chosen with `docker context use`, None for the default one."""
    home = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        name = os.environ.get("DOCKER_CONTEXT") or json.loads((home / "config.json").read_text()).get("currentContext")
        for file in (home / "contexts" / "meta").glob("*/meta.json") if name else ():
            meta = json.loads(file.read_text())
            if meta.get("Name") == name:
                return str(meta["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return None
