"""Containers reach what they may through a proxy of the runner, from a network that leads nowhere else."""

from __future__ import annotations

import asyncio

import docker
from network_suite import ForwarderTests

from pytest_benchflow.core.network import Network
from pytest_benchflow.sandboxes import Backend, SandboxSpec
from pytest_benchflow.sandboxes.docker import DockerBackend


class TestDocker(ForwarderTests):
    spec = SandboxSpec("network", docker_image="debian:bookworm-slim")
    host_name = "host.docker.internal"

    def make_backend(self) -> Backend:
        return DockerBackend()


async def test_neighbours_in_the_guarded_network_do_not_meet() -> None:
    backend = DockerBackend()
    await backend.preflight()
    names = [f"{number}.example" for number in range(2)]
    specs = [
        SandboxSpec("n", docker_image="debian:bookworm-slim", network=Network("allowlist", (name,))) for name in names
    ]
    one, two = map(backend.create, specs)
    client = docker.from_env(version="auto").api
    try:
        await one.start()
        await two.start()
        (network,) = client.inspect_container(one.id)["NetworkSettings"]["Networks"]
        address = (await one.exec("hostname -I")).stdout.strip()
        server = await one.open_process(["python3", "-um", "http.server", "8000"])
        async with asyncio.timeout(60):
            assert b"Serving" in await server.read()
        script = "curl -s -o /dev/null -w %{http_code} --max-time 5 --noproxy '*' http://"
        assert (await one.exec(f"{script}{address}:8000/")).stdout == "200"
        assert (await two.exec(f"{script}{address}:8000/")).stdout == "000"
        # The proxy of one neighbour serves that one alone.
        proxy = (await one.exec("echo $http_proxy")).stdout.strip()
        script = f"curl -s -o /dev/null -w %{{http_code}} --max-time 20 -x {proxy} http://x.example/"
        assert (await one.exec(script)).stdout == "403"
        assert (await two.exec(script)).stdout == "000"
    finally:
        await one.stop()
        await two.stop()
        await backend.aclose()
    # Other runs have networks like it.
    assert network.startswith("bf-guarded")
    assert network not in [each["Name"] for each in client.networks()]
