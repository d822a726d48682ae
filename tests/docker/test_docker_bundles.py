"""Bundles in containers: mounted from a volume, or refused where the image cannot run them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pytest_benchflow.agents.bundles.bundle import Bundle, BundleSpec
from pytest_benchflow.agents.bundles.store import BundleStore
from pytest_benchflow.core.errors import InstallError
from pytest_benchflow.sandboxes import Sandbox
from pytest_benchflow.sandboxes.docker.backend import DockerBackend
from pytest_benchflow.sandboxes.docker.container_spec import volume_name

Start = Callable[..., "asyncio.Future[Sandbox]"]


def docker(*words: str) -> None:
    subprocess.run(["docker", *words], capture_output=True, check=True)


@pytest.fixture
async def bundle(backend: DockerBackend, tmp_path: Path) -> AsyncIterator[Bundle]:
    """Give a bundle of one script with a node of its own; here the machine's bash plays the node."""
    fake = tmp_path / "bin"
    fake.mkdir()
    package = "$3/node_modules/tool"
    (fake / "npm").write_text(
        f"#!/bin/sh\nset -e\nmkdir -p {package} $3/node_modules/.bin\n"
        f"printf '#!/usr/bin/env node\\necho $BASH $1\\n' >{package}/tool.js\n"
        "ln -s ../tool/tool.js $3/node_modules/.bin/tool\n"
    )
    (fake / "npm").chmod(0o755)
    store = BundleStore(tmp_path / "agents")
    home = store.path / "runtimes" / f"node-1-{os.uname().machine}" / "bin"
    home.mkdir(parents=True)
    shutil.copy2(os.path.realpath("/bin/bash"), home / "node")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
        made = await store.provide(BundleSpec("tool", "1", node="1", npm=("tool",), programs=("tool",)))
    yield made
    await backend.aclose()
    docker("volume", "rm", "--force", volume_name(made.mount()))


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "uploaded"])
async def test_programs_run_for_every_user(start: Start, bundle: Bundle, mounted: bool) -> None:
    sandbox = await start(mounts=(bundle.mount(),) if mounted else ())
    prefix = await bundle.deploy(sandbox)
    for user in ("root", "nobody"):
        done = await sandbox.exec(f"{prefix}/bin/tool x", user=user)
        assert done.stdout == f"{bundle.target}/runtime/node x\n"


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "uploaded"])
async def test_an_image_that_cannot_run_it_and_has_no_npm_is_an_error(
    start: Start, bundle: Bundle, mounted: bool
) -> None:
    mounts = (bundle.mount(),) if mounted else ()
    sandbox = await start(docker_image="bf-test/busybox:1", mounts=mounts)
    with pytest.raises(InstallError, match=r"Agent tool install failed \(rc=127\): the image has no npm; its bundle"):
        await bundle.deploy(sandbox)
