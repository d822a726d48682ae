"""The Docker daemon: where it listens, and calls to it through the SDK.

The SDK blocks, so its calls run in threads, and this is the only place that starts them.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from pytest_benchflow.core.errors import SandboxError

if TYPE_CHECKING:
    import docker


_DEFAULT = "/var/run/docker.sock"
_OLDEST_VERSION = "1.24"
_HELLO_TIMEOUT_SEC = 20
PLAIN_TO_TLS = "Client sent an HTTP request to an HTTPS server"
_TLS_FILES = ("ca.pem", "cert.pem", "key.pem")


@dataclass(frozen=True, slots=True)
class Address:
    """One daemon."""

    url: str
    """As DOCKER_HOST would have it."""
    tls_dir: Path | None = None
    """Where `ca.pem`, `cert.pem` and `key.pem` lie, as far as there are any; None for a plain connection."""

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
        ca, cert, key = (self._tls_file(name) for name in _TLS_FILES)
        context = ssl.create_default_context(cafile=ca)
        if cert and key:
            context.load_cert_chain(cert, key)
        return context

    def client(self, version: str | None = None, timeout_sec: int = 60) -> docker.APIClient:
        """Return a client of the SDK for it that speaks a version of the interface, by default the daemon's."""
        import docker
        from docker.tls import TLSConfig

        tls: TLSConfig | bool = False
        if self.tls_dir is not None:
            ca, cert, key = (self._tls_file(name) for name in _TLS_FILES)
            tls = TLSConfig(client_cert=(cert, key) if cert and key else None, ca_cert=ca, verify=True)
        # A daemon that does not answer this at once will not later, and the wait would delay the end of this process.
        patience = timeout_sec if version else min(timeout_sec, _HELLO_TIMEOUT_SEC)
        client = docker.APIClient(self.url, version=version or _OLDEST_VERSION, timeout=patience, tls=tls)
        # Otherwise certificates and proxies that are meant for the web would go before the daemon's own.
        client.trust_env = False
        if version is not None:
            return client
        try:
            version = _api_version_of(client)
        finally:
            client.close()
        return self.client(version, timeout_sec)

    def environment(self) -> dict[str, str]:
        """Return the variables with which a docker command finds it, whatever context is chosen."""
        variables = {"DOCKER_HOST": self.url, "DOCKER_TLS": "", "DOCKER_TLS_VERIFY": "", "DOCKER_CERT_PATH": ""}
        if self.tls_dir is not None:
            variables |= {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(self.tls_dir)}
        return {**os.environ, **variables}

    def _tls_file(self, name: str) -> str | None:
        path = self.tls_dir and self.tls_dir / name
        return str(path) if path and path.exists() else None


def _api_version_of(client: docker.APIClient) -> str:
    """Return the version of the interface that a daemon speaks; DockerException if it is none."""
    from docker.errors import APIError, DockerException

    try:
        return str(client.version(api_version=False)["ApiVersion"])
    except (APIError, ValueError, KeyError, TypeError) as error:
        if PLAIN_TO_TLS in str(error):
            raise
        raise DockerException("something other than a Docker daemon answers there") from None


def find_address() -> Address:
    """Return the daemon that the docker command would use here."""
    if url := os.environ.get("DOCKER_HOST"):
        return _check_address(
            Address(url) if url.startswith("unix://") else _with_tls_from_environment(url), "DOCKER_HOST"
        )
    if name := _context_name():
        return _check_address(_context(name), f"docker context {name}")
    return Address(f"unix://{_usual_socket()}")


def _with_tls_from_environment(url: str) -> Address:
    if not os.environ.get("DOCKER_TLS_VERIFY"):
        if os.environ.get("DOCKER_TLS"):
            raise _unverified_error("DOCKER_TLS is set without DOCKER_TLS_VERIFY")
        return Address(url)
    directory = Path(os.environ.get("DOCKER_CERT_PATH") or _config_home())
    if not (directory / "ca.pem").is_file():
        raise SandboxError(
            f"DOCKER_TLS_VERIFY is set, and there is no {directory}/ca.pem",
            advice="set DOCKER_CERT_PATH to the directory with ca.pem, cert.pem and key.pem",
            retryable=False,
        )
    return Address(url, directory)


def _unverified_error(what: str) -> SandboxError:
    return SandboxError(
        f"{what}: a Docker daemon whose certificate is not checked cannot be used",
        advice="give the certificate of its authority as ca.pem",
        retryable=False,
    )


def _check_address(address: Address, source: str) -> Address:
    """Refuse what no connection can be made to."""
    if address.url.startswith("ssh://"):
        raise _ssh_error(address.url, source)
    try:
        is_valid = address.url.startswith("tcp://") and bool(urlsplit(address.url).hostname)
        is_valid = is_valid and urlsplit(address.url).port != 0
    except ValueError:
        is_valid = False
    if not is_valid and not address.url.startswith("unix:///"):
        raise SandboxError(
            f"{source} is {address.url!r}, which is not an address of a Docker daemon",
            advice="give unix:///PATH or tcp://HOST:PORT",
            retryable=False,
        )
    return address


def daemon_answers(timeout_sec: float = 2.0) -> bool:
    """Return whether a daemon answers here; imports nothing heavy and is immediate where there is no socket."""
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


def _ssh_error(url: str, source: str) -> SandboxError:
    there, _, path = url.removeprefix("ssh://").partition("/")
    forward = f"ssh -nNT -L /tmp/docker.sock:/{path or _DEFAULT[1:]} ssh://{there}"
    return SandboxError(
        f"{source} is {url}: a Docker daemon cannot be used through ssh:// as it is",
        advice=f"forward its socket with `{forward}` and set DOCKER_HOST=unix:///tmp/docker.sock",
        retryable=False,
    )


def _config_home() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _context_name() -> str | None:
    """Return the context chosen with DOCKER_CONTEXT or `docker context use`, None for the default one."""
    name = os.environ.get("DOCKER_CONTEXT")
    if not name:
        try:
            name = json.loads((_config_home() / "config.json").read_text()).get("currentContext")
        except (OSError, ValueError, AttributeError):
            return None
    return None if not name or name == "default" else str(name)


def _context(name: str) -> Address:
    """Return the endpoint of a context, with its certificates."""
    top = _config_home() / "contexts"
    for file in (top / "meta").glob("*/meta.json"):
        try:
            meta = json.loads(file.read_text())
            if meta["Name"] == name:
                endpoint = meta["Endpoints"]["docker"]
                tls_dir = top / "tls" / file.parent.name / "docker"
                if endpoint.get("SkipTLSVerify"):
                    raise _unverified_error(f"docker context {name} skips the verification")
                return Address(str(endpoint["Host"]), tls_dir if tls_dir.is_dir() else None)
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            continue
    raise SandboxError(
        f"docker context {name} is chosen but cannot be found or read in {top}",
        advice="see `docker context ls`, change it with `docker context use`, or set DOCKER_HOST",
        retryable=False,
    )


T = TypeVar("T")
_THREADS = 32
_PROBE_TIMEOUT_SEC = 20.0
#: No single answer takes longer on a loaded machine; builds and pulls, which may, do not wait here.
CALL_TIMEOUT_SEC = 180


class EngineError(SandboxError):
    """The daemon refused a request; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"docker: {message}")
        self.status = status
        self.reason = message


class Unreachable(SandboxError):
    """No daemon answers."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"no Docker daemon answers at {address.url} ({why})", advice=_advice(address, why))


def _advice(address: Address, why: str) -> str:
    if PLAIN_TO_TLS in why:
        return "set DOCKER_TLS_VERIFY=1, and DOCKER_CERT_PATH to the directory with ca.pem, cert.pem and key.pem"
    if address.tls_dir is not None and "SSL" in why:
        return f"check the certificates in {address.tls_dir}"
    if "Permission denied" in why:
        return "join the group that owns the socket, set DOCKER_HOST, or use --bf-sandbox local"
    return "start it, set DOCKER_HOST, or use --bf-sandbox local"


class DockerEngine:
    """One daemon, reached through a client per thread."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._version: str | None = None
        self._clients: list[docker.APIClient] = []
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="benchflow-docker")

    async def call(self, work: Callable[[docker.APIClient], T]) -> T:
        """Give `work` a client in a thread and return what it returns; SandboxError says what went wrong."""
        return await self.thread(lambda: self._call(work))

    async def finish(self, work: Callable[[docker.APIClient], T]) -> T:
        """Like `call`, but to its end even when cancelled: what is half made could not be removed."""
        calling = asyncio.ensure_future(self.call(work))
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            await asyncio.wait([calling])
            raise

    async def thread(self, work: Callable[[], T]) -> T:
        """Do other blocking work, such as packing files, in one of the threads."""
        return await asyncio.wrap_future(self._threads.submit(work))

    async def version(self) -> str:
        """Return the version of the interface that both sides speak."""
        if self._version is None:
            self._version = await self.call(lambda client: str(client.api_version))
        return self._version

    def close(self) -> None:
        """Let go of threads and connections; idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for client in self._clients:
            client.close()
        self._clients.clear()

    def _call(self, work: Callable[[docker.APIClient], T]) -> T:
        import requests
        from docker.errors import APIError, DockerException

        try:
            # The SDK leaves a socket open when nobody listens, and wraps the reason four times.
            probe(self.address, _PROBE_TIMEOUT_SEC)
            return work(self._client())
        except APIError as error:
            text = str(error.explanation or error).strip()
            if PLAIN_TO_TLS in text:
                raise Unreachable(self.address, PLAIN_TO_TLS) from None
            raise EngineError(error.response.status_code if error.response is not None else 500, text) from None
        except requests.exceptions.Timeout:
            if getattr(self._own, "client", None) is None:
                raise Unreachable(self.address, "no answer") from None
            raise SandboxError(f"the Docker daemon gave no answer within {CALL_TIMEOUT_SEC} s") from None
        except (requests.exceptions.RequestException, DockerException, OSError) as error:
            raise Unreachable(self.address, _root_cause(error)) from None

    def _client(self) -> docker.APIClient:
        client: docker.APIClient | None = getattr(self._own, "client", None)
        if client is None:
            client = self.address.client(self._version, CALL_TIMEOUT_SEC)
            self._version = client.api_version
            self._own.client = client
            self._clients.append(client)
        return client


def _root_cause(error: BaseException) -> str:
    """Return the innermost reason: the SDK wraps `Connection refused` four times."""
    inner: BaseException = error
    while (cause := inner.__cause__ or (None if inner.__suppress_context__ else inner.__context__)) is not None:
        inner = cause
    reason = (inner.strerror if isinstance(inner, OSError) else None) or str(inner) or type(inner).__name__
    return " ".join(reason.split())
