"""The docker sandbox passes the public suite."""

from __future__ import annotations

import docker
from docker.errors import NotFound

from pytest_benchflow.sandboxes import Mount, SandboxSpec
from pytest_benchflow.sandboxes.docker.container_spec import volume_name
from pytest_benchflow.testing.conformance import SandboxConformance


class TestDockerSandbox(SandboxConformance):
    factory = "pytest_benchflow.sandboxes.docker:DockerBackend"
    spec = SandboxSpec(name="conformance", docker_image="debian:bookworm-slim")
    # More than may be held of it in memory.
    big_file_bytes = 512 << 20

    async def forget(self, mount: Mount) -> None:
        client = docker.from_env(version="auto").api
        try:
            client.remove_volume(volume_name(mount))
        except NotFound:
            pass
        finally:
            client.close()
