"""Who is reached through our own forwarder, with the internet stood in for; the same for every sandbox that has it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from outside import Outside, outside

from pytest_benchflow.core.network import NO_NETWORK, PUBLIC, Endpoint, Network
from pytest_benchflow.sandboxes import Backend, Sandbox, SandboxSpec

ALLOWED = Network("allowlist", ("one.example", "*.two.example"))
DENIED = Network("denylist", (), ("bad.example", "10.0.0.0/8"), ("https://worse.example/",))


async def fetch(sandbox: Sandbox, host: str) -> str:
    """Return what a host says to a program in the sandbox, "" if nothing."""
    return (await sandbox.exec(f"curl -sf --max-time 20 $CURL http://{host}/", timeout_sec=60)).stdout


class ForwarderTests:
    """Subclass it with a backend and a spec."""

    spec = SandboxSpec("network")
    uses_proxy = True
    """Whether programs go through the proxy that variables name, and do not just go."""
    host_name = "127.0.0.1"
    """How programs in the sandbox call this machine."""

    def make_backend(self) -> Backend:
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def started(
        self, monkeypatch: pytest.MonkeyPatch, network: Network, *later: Network
    ) -> AsyncIterator[tuple[Sandbox, Outside]]:
        """Start a sandbox on a machine that reaches others through a proxy which is all the world."""
        from dataclasses import replace

        async with outside() as world:
            for name in ("http_proxy", "https_proxy"):
                monkeypatch.setenv(name, world.url.replace("//", "//me:pass@"))
            monkeypatch.setenv("no_proxy", "")
            backend, env = self.make_backend(), {} if self.uses_proxy else {"CURL": "--noproxy *"}
            await backend.preflight()
            sandbox = backend.create(replace(self.spec, network=network, later_networks=later, env=env))
            try:
                await sandbox.start()
                yield sandbox, world
            finally:
                await sandbox.stop()
                await backend.aclose()

    async def test_allow_list(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with self.started(monkeypatch, ALLOWED) as (sandbox, world):
            assert await fetch(sandbox, "one.example") == "hello from one.example\n"
            assert await fetch(sandbox, "a.b.two.example") == "hello from a.b.two.example\n"
            for host in ("three.example", "two.example", "one.example.evil.example", "192.0.2.7"):
                assert "hello" not in await fetch(sandbox, host), host
            assert set(world.asked) == {"one.example", "a.b.two.example"}
            (note,) = [note for note in sandbox.notes if "refused" in note]
            assert "three.example" in note
            assert "192.0.2.7" in note
            assert "pass" not in (await sandbox.exec("env")).stdout

    async def test_deny_list(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with self.started(monkeypatch, DENIED) as (sandbox, world):
            assert await fetch(sandbox, "good.example") == "hello from good.example\n"
            for host in ("bad.example", "worse.example", "10.1.2.3", "192.0.2.7"):
                assert "hello" not in await fetch(sandbox, host), host
            await sandbox.exec("curl -s --max-time 20 $CURL https://gone.example/", timeout_sec=60)
            assert world.asked == ["good.example"]
            (note,) = [note for note in sandbox.notes if "could not reach" in note]
            assert note == "this machine could not reach gone.example"

    async def test_phases(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with self.started(monkeypatch, NO_NETWORK, ALLOWED, PUBLIC) as (sandbox, world):
            assert await fetch(sandbox, "one.example") == ""
            await sandbox.set_network(ALLOWED)  # type: ignore[attr-defined]
            assert await fetch(sandbox, "one.example") == "hello from one.example\n"
            assert "hello" not in await fetch(sandbox, "three.example")
            await sandbox.set_network(NO_NETWORK)  # type: ignore[attr-defined]
            assert "hello" not in await fetch(sandbox, "one.example")
            assert world.asked == ["one.example"]

    async def test_a_connection_that_is_no_longer_allowed_is_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with self.started(monkeypatch, ALLOWED, NO_NETWORK) as (sandbox, _):
            script = 'import os, socket; s = socket.create_connection(("one.example", 443)); print("open", flush=True)'
            script += '; s.recv(1); print("cut")'
            if self.uses_proxy:
                proxy = (await sandbox.exec('echo "${https_proxy#http://}"')).stdout.strip()
                host, _, port = proxy.partition(":")
                script = script.replace('"one.example", 443', f'"{host}", {port}')
                script = script.replace(
                    '; print("open"',
                    '; s.sendall(b"CONNECT one.example:443 HTTP/1.1\\r\\n\\r\\n"); s.recv(99); print("open"',
                )
            process = await sandbox.open_process(["python3", "-c", script])
            async with asyncio.timeout(30):
                assert await process.read() == b"open\n", await process.read_stderr()
                await sandbox.set_network(NO_NETWORK)  # type: ignore[attr-defined]
                await process.wait()

    async def test_its_own_servers_are_reached_by_their_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        script = """
echo "127.0.0.1 shop.test" >>/etc/hosts
cd /tmp && echo mine >mine && (setsid python3 -m http.server 8000 >/dev/null 2>&1 &)
for try in {1..100}; do curl -sf http://127.0.0.1:8000/ >/dev/null && break; sleep 0.1; done
for host in localhost $(hostname) shop.test; do curl -sf --max-time 20 http://$host:8000/mine; done
"""
        async with self.started(monkeypatch, ALLOWED) as (sandbox, world):
            done = await sandbox.exec(script, timeout_sec=100)
            assert (done.stdout, world.asked) == ("mine\n" * 3, []), done.stderr

    async def test_a_server_of_this_machine_can_be_granted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with outside() as model:
            port = int(model.url.rpartition(":")[2])
            granted = NO_NETWORK.with_endpoints([Endpoint(self.host_name, port)])
            async with self.started(monkeypatch, NO_NETWORK, granted) as (sandbox, world):
                place = f"{self.host_name}:{port}"
                assert "hello" not in await fetch(sandbox, place)
                await sandbox.set_network(granted)  # type: ignore[attr-defined]
                assert "hello" in await fetch(sandbox, place)
                assert "hello" not in await fetch(sandbox, "one.example")
                await sandbox.set_network(NO_NETWORK)  # type: ignore[attr-defined]
                assert "hello" not in await fetch(sandbox, place)
            assert world.asked == []
