"""Calls to the Docker SDK: they block, so they run in threads, and this is the only place that starts them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from pytest_benchflow.errors import SandboxError

from .address import PLAIN_TO_TLS, Address, probe

if TYPE_CHECKING:
    import docker

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


class Engine:
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
                raise Unreachable(self.address, "it says nothing") from None
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
