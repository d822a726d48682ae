"""A backend for the whole run, and a started sandbox for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sandbox_helpers import StartSandbox

from pytest_benchflow.sandboxes import Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the layers of all tests away from the user's own."""
    directory = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BF_CACHE_DIR", str(directory))
        yield directory


@pytest.fixture(scope="session")
def backend(cache: Path) -> Iterator[LocalBackend]:
    """Share one zygote among the tests of a process."""
    backend = LocalBackend()
    yield backend
    asyncio.run(backend.aclose())


@pytest.fixture
async def start(backend: LocalBackend) -> AsyncIterator[StartSandbox]:
    """Give the function that starts a sandbox, which is stopped after the test."""
    started: list[Sandbox] = []

    async def start_one(**spec: object) -> Sandbox:
        sandbox = backend.create(SandboxSpec(**{"name": "box", **spec}))  # type: ignore[arg-type]
        started.append(sandbox)
        await sandbox.start()
        return sandbox

    yield start_one
    for sandbox in started:
        await sandbox.stop()


@pytest.fixture
async def sandbox(start: StartSandbox) -> Sandbox:
    """Give a started sandbox without any environment."""
    return await start()
