"""The docker sandbox passes the public suite."""

from __future__ import annotations

from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.testing import SandboxConformance


class TestDockerSandbox(SandboxConformance):
    factory = "pytest_benchflow.sandboxes.docker:DockerBackend"
    spec = SandboxSpec(name="conformance", docker_image="debian:bookworm-slim")
