"""A bundle gets into any sandbox: mounted, uploaded, or installed there by what the image has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bundle_helpers import SPEC, FakeNpm

from pytest_benchflow.agents.bundles.bundle import Bundle
from pytest_benchflow.agents.bundles.store import BundleStore
from pytest_benchflow.core.errors import InstallError
from pytest_benchflow.sandboxes import Mount, Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend

#: What the image has as npm: it notes its arguments and makes a program.
NPM = """#!/bin/sh
echo "$@" >>/npm-calls
[ -e /npm-fails ] && { echo "npm error code EAI_AGAIN"; echo "npm error request failed"; exit 1; }
mkdir -p "$3/node_modules/.bin"
printf '#!/bin/sh\\necho inside $1\\n' >"$3/node_modules/.bin/tool"
chmod 755 "$3/node_modules/.bin/tool"
"""
Start = Callable[..., Awaitable[Sandbox]]


@pytest.fixture
async def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Give the function that starts a local sandbox whose npm is the one above."""
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path / "cache"))
    backend = LocalBackend()
    (tmp_path / "npm").write_text(NPM)
    (tmp_path / "npm").chmod(0o755)

    async def start_one(*mounts: Mount) -> Sandbox:
        sandbox = backend.create(SandboxSpec("box", mounts=mounts))
        await sandbox.start()
        await sandbox.upload_file(tmp_path / "npm", "/usr/local/bin/npm")
        return sandbox

    yield start_one
    await backend.aclose()


@pytest.fixture
async def bundle(store: BundleStore, npm: FakeNpm) -> Bundle:
    return await store.provide(SPEC)


@pytest.fixture
async def foreign(store: BundleStore, npm: FakeNpm) -> Bundle:
    """Give a bundle whose runtime starts nowhere, like one for another machine."""
    bundle = await store.provide(replace(SPEC, agent="foreign"))
    (bundle.path / "check").write_text("#!/bin/sh\nexit 126\n")
    return bundle


async def test_a_mounted_bundle_is_used_as_it_is(start: Start, bundle: Bundle) -> None:
    sandbox = await start(bundle.mount())
    assert await bundle.deploy(sandbox) == bundle.target
    assert (await sandbox.exec(f"{bundle.target}/bin/tool x; touch {bundle.target}/new")).stdout == "tool x\n"
    assert (await sandbox.exec(f"ls {bundle.target}/new /npm-calls")).stdout == ""


async def test_without_a_mount_it_is_uploaded_once(start: Start, bundle: Bundle) -> None:
    sandbox = await start()
    assert await bundle.deploy(sandbox) == bundle.target
    await sandbox.exec(f"echo mine >>{bundle.target}/bin/tool", user=0)
    assert await bundle.deploy(sandbox) == bundle.target
    assert (await sandbox.exec(f"tail -1 {bundle.target}/bin/tool; ls /npm-calls")).stdout == "mine\n"


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "uploaded"])
async def test_where_it_cannot_run_the_image_installs_it_once(
    start: Start, foreign: Bundle, tmp_path: Path, mounted: bool
) -> None:
    sandbox = await start(*([foreign.mount()] if mounted else []))
    log = tmp_path / "agent" / "install-stdout.txt"
    prefix = await foreign.deploy(sandbox, log=log)
    assert prefix != foreign.target
    assert (await sandbox.exec(f"{prefix}/bin/tool x")).stdout == "inside x\n"
    assert await foreign.deploy(sandbox, log=log) == prefix
    calls = (await sandbox.exec("cat /npm-calls")).stdout.splitlines()
    assert len(calls) == 1
    assert calls[0].endswith(" tool@1.0")


async def test_what_the_image_cannot_install_is_one_error_and_tried_again(
    start: Start, foreign: Bundle, tmp_path: Path
) -> None:
    sandbox = await start(foreign.mount())
    await sandbox.exec("touch /npm-fails", user=0)
    log = tmp_path / "agent" / "install-stdout.txt"
    with pytest.raises(InstallError) as failed:
        await foreign.deploy(sandbox, log=log)
    assert failed.value.message == "Agent foreign install failed (rc=1): EAI_AGAIN: request failed"
    assert "put npm or pip into it" in (failed.value.advice or "")
    assert "EAI_AGAIN" in log.read_text()
    await sandbox.exec("rm /npm-fails", user=0)
    assert (await sandbox.exec(f"{await foreign.deploy(sandbox)}/bin/tool x")).stdout == "inside x\n"


async def test_an_image_without_npm_is_told(start: Start, foreign: Bundle) -> None:
    sandbox = await start(foreign.mount())
    await sandbox.exec("rm -f /usr/local/bin/npm /usr/bin/npm /bin/npm", user=0)
    with pytest.raises(InstallError, match=r"\(rc=127\): the image has no npm"):
        await foreign.deploy(sandbox)


async def test_a_program_that_the_packages_do_not_have_there_is_named(
    start: Start, store: BundleStore, npm: FakeNpm
) -> None:
    bundle = await store.provide(replace(SPEC, programs=("tool", "helper")))
    (bundle.path / "check").write_text("exit 126\n")
    with pytest.raises(InstallError, match="no program helper in the packages"):
        await bundle.deploy(await start(bundle.mount()))
