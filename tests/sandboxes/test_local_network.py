"""The way out of local sandboxes: through packet rules, and through a proxy where the kernel has none."""

from __future__ import annotations

import asyncio
import socket

import pytest
from network_suite import ForwarderTests
from outside import outside
from sandbox_helpers import StartSandbox

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.core.network import Endpoint, Network
from pytest_benchflow.sandboxes import Backend, Sandbox
from pytest_benchflow.sandboxes.local import LocalBackend
from pytest_benchflow.sandboxes.network import dns
from pytest_benchflow.sandboxes.network.dial import Dialer, is_own


class TestWithRules(ForwarderTests):
    uses_proxy = False

    def make_backend(self) -> Backend:
        return LocalBackend()


class TestWithProxy(ForwarderTests):
    def make_backend(self) -> Backend:
        backend = LocalBackend()
        backend.configure({"network": "proxy"})
        return backend


async def test_names_are_found_without_any_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with TestWithRules().started(monkeypatch, Network("allowlist", ("one.example",))) as (sandbox, _):
        found = await sandbox.exec("getent hosts one.example three.example")
        names = {line.split()[1]: line.split()[0] for line in found.stdout.splitlines()}
        assert list(names) == ["one.example"]
        reverse = await sandbox.exec(f"getent hosts {names['one.example']}")
        assert reverse.stdout.split() == [names["one.example"], "one.example"]


async def test_no_address_of_this_machine_is_reached(sandbox: Sandbox) -> None:
    # On every address, or nobody would answer at the others anyway.
    async with outside("0.0.0.0") as server:
        port = server.url.rpartition(":")[2]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            own = probe.getsockname()[0]
        for address in ("127.0.0.1", "127.1.2.3", "localhost", socket.gethostname(), own, "10.0.2.2", "0.0.0.0"):
            done = await sandbox.exec(f"curl -s --max-time 5 http://{address}:{port}/", timeout_sec=30)
            assert done.stdout == "", address
        # The runner itself could reach these, and would be asked to by whoever finds its proxy.
        for address in ("127.0.0.1", "localhost", "127.1.2.3", own):
            request = f"curl -s --max-time 5 --noproxy '' -x http://127.0.0.1:6 http://{address}:{port}/"
            assert "leads to this machine itself" in (await sandbox.exec(request, timeout_sec=30)).stdout, address
    assert server.asked == []


async def test_what_is_downloaded_and_sent_arrives_whole(start: StartSandbox) -> None:
    """Bytes in both directions, half-closed in the middle as programs do."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read(-1)
        writer.write(data[::-1])
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0, limit=1 << 26) as server:
        endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        sandbox = await start(network=Network("no-network", endpoints=(endpoint,)))
        code = (
            "import socket, hashlib; data = bytes(range(256)) * 40000;"
            f"s = socket.create_connection(('127.0.0.1', {endpoint.port})); s.sendall(data);"
            "s.shutdown(socket.SHUT_WR); got = b''.join(iter(lambda: s.recv(65536), b''));"
            "print(len(got), got == data[::-1])"
        )
        assert (await sandbox.exec(f'python3 -c "{code}"', timeout_sec=60)).stdout == "10240000 True\n"


async def test_a_port_that_is_taken_is_named(start: StartSandbox) -> None:
    sandbox = await start()
    code = "import socket, time; s = socket.create_server(('', 7000)); print(1, flush=True); time.sleep(600)"
    process = await sandbox.open_process(["python3", "-c", code])
    await process.read()
    with pytest.raises(SandboxError, match="port 7000 of sandbox box: Address already in use"):
        await sandbox.listen(7000)  # type: ignore[attr-defined]


async def test_more_connections_than_may_be_open_wait(start: StartSandbox) -> None:
    async with outside() as server:
        endpoint = Endpoint("127.0.0.1", int(server.url.rpartition(":")[2]))
        sandbox = await start(network=Network("no-network", endpoints=(endpoint,)))
        code = (
            "import socket; s = [socket.create_connection(('127.0.0.1', PORT)) for _ in range(200)];"
            "[c.sendall(b'GET http://x/ HTTP/1.1\\r\\n\\r\\n') for c in s];"
            "print(sum((b'hello' in c.recv(999), c.close())[0] for c in s))"
        ).replace("PORT", str(endpoint.port))
        assert (await sandbox.exec(f'python3 -c "{code}"', timeout_sec=60)).stdout == "200\n"


@pytest.mark.parametrize(
    ("address", "own"),
    [
        *[(each, True) for each in ("127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "169.254.169.254", "::ffff:127.0.0.1")],
        *[(each, False) for each in ("192.0.2.1", "198.51.100.7", "10.255.255.254", "2001:db8::1", "")],
    ],
)
def test_own_addresses(address: str, own: bool) -> None:
    assert is_own(address) == own


def test_proxies_of_this_machine() -> None:
    environ = {"HTTPS_PROXY": "http://me:p%40ss@proxy:3128", "http_proxy": "plain:80", "no_proxy": ".corp, 10.1.1.1"}
    dialer = Dialer(environ)
    upstream = dialer.upstream("example.com", 443)
    assert upstream is not None
    assert (upstream.host, upstream.port, upstream.authorization) == ("proxy", 3128, "Basic bWU6cEBzcw==")
    assert dialer.upstream("example.com", 80).host == "plain"  # type: ignore[union-attr]
    assert [dialer.upstream(host, 443) for host in ("a.corp", "corp", "10.1.1.1")] == [None] * 3
    assert not Dialer({"all_proxy": "socks5://proxy"}).has_proxy


@pytest.mark.parametrize("message", [b"", b"\0" * 11, b"\0" * 12, b"\0\0\1\0\0\1\0\0\0\0\0\0\x3fabc", b"\xff" * 99])
def test_what_is_no_question_is_not_answered(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"too soon|longer|one question"):
        dns.parse(message)
