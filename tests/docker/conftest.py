"""What tests with a Docker engine share."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from pytest_benchflow.sandboxes import Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.build_context import BuildContext
from pytest_benchflow.sandboxes.docker import container_spec
from pytest_benchflow.sandboxes.docker.backend import DockerBackend

BASE = "debian:bookworm-slim"
NEEDS_NO_DAEMON = {"test_docker_units.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents and item.path.name not in NEEDS_NO_DAEMON]
    for item in ours:
        item.add_marker(pytest.mark.docker)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "bf-cache"))


@pytest.fixture(scope="session")
def is_podman() -> bool:
    """Return whether the daemon that answers is Podman's."""
    import docker

    with contextlib.closing(docker.from_env(version="auto").api) as client:
        return "BuildahVersion" in client.info()


@pytest.fixture
def own_machine(monkeypatch: pytest.MonkeyPatch) -> str:
    """Be on a machine of its own: runs beside this test sweep away what dead runs of their machine left."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    monkeypatch.setattr(container_spec, "_machine", lambda: name)
    return name


@pytest.fixture
def dead_labels(own_machine: str) -> Callable[[str, str], dict[str, str]]:
    """Make the labels that a process of this test's machine, gone since, gave to what it made."""
    script = "import json, sys; from pytest_benchflow.sandboxes.docker import container_spec\n"
    script += "container_spec._machine = lambda: sys.argv[1]\n"
    script += "print(json.dumps(container_spec.make_labels(*sys.argv[2:])))"

    def make(run: str, rollout: str) -> dict[str, str]:
        argv = [sys.executable, "-c", script, own_machine, run, rollout]
        made: dict[str, str] = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
        return made

    return make


@pytest.fixture
def made_images() -> Iterator[set[str]]:
    """Remove the images that a test names here, after its containers: one in use would only lose its name."""
    import docker

    made: set[str] = set()
    yield made
    with contextlib.closing(docker.from_env(version="auto").api) as client:
        for tag in made:
            if client.images(name=tag):
                client.remove_image(tag, force=True)


@pytest.fixture
async def backend(made_images: set[str]) -> AsyncIterator[DockerBackend]:
    backend = DockerBackend()
    await backend.preflight()
    yield backend
    await backend.aclose()


@pytest.fixture
async def start(backend: DockerBackend) -> Callable[..., object]:
    """Start a sandbox with these fields of its spec; the backend stops it."""

    async def start_one(**fields: object) -> Sandbox:
        defaults = {"name": "test"} if "environment_dir" in fields else {"name": "test", "docker_image": BASE}
        sandbox = backend.create(SandboxSpec(**{**defaults, **fields}))  # type: ignore[arg-type]
        await sandbox.start()
        return sandbox

    return start_one


@pytest.fixture
def context(tmp_path: Path, made_images: set[str]) -> Iterator[Callable[..., Path]]:
    """Write an environment directory; the images that its contents led to are removed again."""
    directory = tmp_path / "task" / "environment"

    def write(dockerfile: str | None, **files: str) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        if dockerfile is not None:
            (directory / "Dockerfile").write_text(dockerfile)
        for name, text in files.items():
            (directory / name.replace("__", ".")).write_text(text)
        if dockerfile is not None:
            made_images.add(tag_of(directory))
        return directory

    yield write
    if (directory / "Dockerfile").exists():
        made_images.add(tag_of(directory))


def tag_of(directory: Path) -> str:
    """Return the image that an environment directory leads to now."""
    return f"pytest-benchflow:{BuildContext(directory).digest({})[:24]}"
