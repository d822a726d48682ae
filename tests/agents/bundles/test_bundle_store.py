"""The store: one installation for everyone, whole or not at all, and nothing left of what went wrong."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bundle_helpers import SPEC, FakeNpm, is_alive, left_in

from pytest_benchflow.agents.bundles import store as store_module
from pytest_benchflow.agents.bundles.bundle import Bundle
from pytest_benchflow.agents.bundles.store import BundleStore
from pytest_benchflow.core.errors import InstallError

#: Asks for the bundle in a process of its own.
ASK = """
import asyncio, sys
from pathlib import Path
from bundle_helpers import SPEC
from pytest_benchflow.agents.bundles import BundleStore
print(asyncio.run(BundleStore(Path(sys.argv[1])).provide(SPEC)).key)
"""


def run(program: Path | str, *words: str) -> str:
    return subprocess.run([program, *words], capture_output=True, check=True, text=True).stdout


def asking(store: BundleStore) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(
        [sys.executable, "-c", ASK, str(store.path)], env=environment, stdout=subprocess.PIPE, text=True
    )


async def until_called(npm: FakeNpm) -> int:
    async with asyncio.timeout(30):
        while not npm.calls:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.01)
    return npm.calls[0]


async def test_a_bundle_has_the_programs_asked_for_and_no_others(store: BundleStore, npm: FakeNpm) -> None:
    bundle = await store.provide(SPEC)
    assert os.listdir(bundle.path / "bin") == ["tool"]
    assert run(bundle.path / "bin" / "tool", "x") == "tool x\n"
    assert bundle.target == f"/opt/benchflow/{bundle.path.name}"
    assert bundle.path.name.startswith("tool-1.0-")


async def test_a_bundle_runs_wherever_it_lies(store: BundleStore, npm: FakeNpm, tmp_path: Path) -> None:
    bundle = await store.provide(SPEC)
    elsewhere = tmp_path / "else where" / "it's"
    shutil.copytree(bundle.path, elsewhere, symlinks=True)
    shutil.rmtree(bundle.path)
    assert run(elsewhere / "bin" / "tool", "x") == "tool x\n"
    (tmp_path / "link").symlink_to(elsewhere / "bin" / "tool")
    assert run(tmp_path / "link", "y") == "tool y\n"


async def test_an_installed_bundle_is_not_installed_again(store: BundleStore, npm: FakeNpm) -> None:
    first = await store.provide(SPEC)
    assert await store.provide(SPEC) == first
    assert await BundleStore(store.path).provide(SPEC) == first
    assert len(npm.calls) == 1


async def test_another_spec_is_another_bundle(store: BundleStore, npm: FakeNpm) -> None:
    other = replace(SPEC, programs=("tool", "helper"))
    paths = {(await store.provide(spec)).path for spec in (SPEC, other, replace(SPEC, version="2.0"))}
    assert len(paths) == len(npm.calls) == 3


async def test_callers_in_one_process_share_one_installation(store: BundleStore, npm: FakeNpm) -> None:
    npm.set("slow")
    bundles = await asyncio.gather(*(store.provide(SPEC) for _ in range(5)))
    assert len({bundle.key for bundle in bundles}) == len(npm.calls) == 1


async def test_processes_share_one_installation(store: BundleStore, npm: FakeNpm) -> None:
    npm.set("slow")
    processes = [asking(store) for _ in range(3)]
    keys = {process.communicate(timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert keys == {f"{(await store.provide(SPEC)).key}\n"}
    assert len(npm.calls) == 1


@pytest.mark.parametrize("damage", ["missing file", "shorter file", "missing program", "no facts", "half facts"])
async def test_a_damaged_bundle_is_made_again(store: BundleStore, npm: FakeNpm, damage: str) -> None:
    bundle = await store.provide(SPEC)
    big = bundle.path / "npm" / "node_modules" / "tool" / "data" / "big"
    match damage:
        case "missing file":
            big.unlink()
        case "shorter file":
            big.write_bytes(b"x")
        case "missing program":
            (bundle.path / "bin" / "tool").chmod(0o644)
        case "no facts":
            (bundle.path / "bundle.json").unlink()
        case "half facts":
            (bundle.path / "bundle.json").write_text('{"key": "x"')
    again = await BundleStore(store.path).provide(SPEC)
    assert (again.key, len(npm.calls)) == (bundle.key, 2)
    assert big.stat().st_size == 100_000
    assert run(bundle.path / "bin" / "tool", "x") == "tool x\n"


async def test_files_that_programs_added_are_no_damage(store: BundleStore, npm: FakeNpm) -> None:
    bundle = await store.provide(SPEC)
    (bundle.path / "cache").write_text("x")
    await BundleStore(store.path).provide(SPEC)
    assert len(npm.calls) == 1


async def test_everyone_may_read_a_bundle_whatever_the_umask(store: BundleStore, npm: FakeNpm) -> None:
    before = os.umask(0o077)
    try:
        bundle = await store.provide(SPEC)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in [bundle.path, *bundle.path.rglob("*")]}
    assert modes == {0o755, 0o644}


async def test_cancellation_kills_npm_and_leaves_nothing(store: BundleStore, npm: FakeNpm) -> None:
    npm.set("hang")
    asked = asyncio.ensure_future(store.provide(SPEC))
    pid = await until_called(npm)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert not is_alive(pid)
    assert (left_in(store.path), store.installed()) == ([], [])
    npm.set("work")
    assert run((await store.provide(SPEC)).path / "bin" / "tool", "x") == "tool x\n"


async def test_one_caller_who_gives_up_does_not_take_it_from_the_others(store: BundleStore, npm: FakeNpm) -> None:
    npm.set("slow")
    first, second = (asyncio.ensure_future(store.provide(SPEC)) for _ in range(2))
    await until_called(npm)
    first.cancel()
    assert (await second).spec == SPEC
    assert first.cancelled()
    assert len(npm.calls) == 1


async def test_what_a_killed_process_left_is_swept_and_its_npm_is_dead(store: BundleStore, npm: FakeNpm) -> None:
    npm.set("hang")
    process = asking(store)
    pid = await until_called(npm)
    assert left_in(store.path)
    process.kill()
    process.communicate()
    async with asyncio.timeout(10):
        while is_alive(pid):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.01)
    npm.set("work")
    await store.provide(SPEC)
    assert left_in(store.path) == []


async def test_failure_says_why_and_the_log_says_more(store: BundleStore, npm: FakeNpm, tmp_path: Path) -> None:
    npm.set("fail")
    log = tmp_path / "agent" / "install-stdout.txt"
    with pytest.raises(InstallError) as failed:
        await store.provide(SPEC, log=log)
    assert failed.value.message == "Agent tool install failed (rc=1): E404: 404 Not Found - GET /no-such-package"
    assert str(store.path) in (failed.value.advice or "")
    assert "A complete log of this run" in log.read_text()
    assert (left_in(store.path), store.installed()) == ([], [])


async def test_the_log_is_there_also_when_nothing_had_to_be_done(
    store: BundleStore, npm: FakeNpm, tmp_path: Path
) -> None:
    await store.provide(SPEC)
    await store.provide(SPEC, log=tmp_path / "log")
    assert "added 1 package" in (tmp_path / "log").read_text()
    assert "tool 1.0" in (tmp_path / "log").read_text().splitlines()[-1]


async def test_a_full_disk_is_an_error_of_the_installation(
    store: BundleStore, npm: FakeNpm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(top: Path) -> None:
        raise OSError(28, "No space left on device", str(top / "x"))

    monkeypatch.setattr(store_module, "seal", full)
    with pytest.raises(InstallError, match=r"Agent tool install failed: .*No space left on device"):
        await store.provide(SPEC)
    assert (left_in(store.path), store.installed()) == ([], [])


async def test_no_npm_is_said_with_what_to_do(store: BundleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InstallError, match="there is no npm on this machine; install Node"):
        await store.provide(SPEC)


async def test_a_program_that_no_package_has_is_named_with_those_they_have(store: BundleStore, npm: FakeNpm) -> None:
    with pytest.raises(InstallError, match="no program 'tol'; they have: broken, helper, tool"):
        await store.provide(replace(SPEC, programs=("tol",)))


async def test_a_program_that_does_not_start_is_an_error(store: BundleStore, npm: FakeNpm) -> None:
    with pytest.raises(InstallError, match=r"\(rc=127\): its program broken does not start"):
        await store.provide(replace(SPEC, programs=("broken",)))
    assert store.installed() == []


async def test_an_installation_without_end_is_ended(
    store: BundleStore, npm: FakeNpm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "INSTALL_TIMEOUT_SEC", 0.5)
    npm.set("hang")
    with pytest.raises(InstallError, match=r"took longer than 0\.5 s"):
        await store.provide(SPEC)
    assert not any(map(is_alive, npm.calls))
    assert left_in(store.path) == []


def aged(bundle: Bundle, days: float) -> Bundle:
    moment = time.time() - days * 86400
    os.utime(bundle.path, (moment, moment))
    return bundle


async def test_unused_are_old_ones_but_never_the_last_of_an_agent(store: BundleStore, npm: FakeNpm) -> None:
    old = aged(await store.provide(SPEC), 50)
    older = aged(await store.provide(replace(SPEC, version="0.9")), 60)
    recent = await store.provide(replace(SPEC, version="2.0"))
    only = aged(await store.provide(replace(SPEC, agent="other")), 90)
    assert {bundle.key for bundle in store.unused(days=55)} == {older.key}
    assert store.unused(days=30) == sorted([old, older], key=lambda bundle: bundle.path)
    store.remove(store.unused(days=30))
    assert {bundle.path for bundle in store.installed()} == {recent.path, only.path}
    assert left_in(store.path) == []


async def test_a_runtime_goes_with_the_last_bundle_that_stands_on_it(store: BundleStore, npm: FakeNpm) -> None:
    machine = os.uname().machine
    for version in ("1", "2"):
        node = store.path / "runtimes" / f"node-{version}-{machine}" / "bin" / "node"
        node.parent.mkdir(parents=True)
        node.write_text(f"#!/bin/sh\necho v{version}\n")
        node.chmod(0o755)
    kept, gone = [await store.provide(replace(SPEC, node=version)) for version in ("1", "2")]
    for version in ("1", "2"):
        os.utime(store.path / "runtimes" / f"node-{version}-{machine}", (0, 0))
    assert kept.runtimes == ("node 1",)
    store.remove([gone])
    assert [path.name for path in store.path.glob("runtimes/node-*/")] == [f"node-1-{machine}"]


async def test_asking_for_a_bundle_counts_as_use(store: BundleStore, npm: FakeNpm) -> None:
    aged(await store.provide(SPEC), 90)
    await store.provide(replace(SPEC, version="2.0"))
    await BundleStore(store.path).provide(SPEC)
    assert store.unused(days=30) == []


async def test_a_store_that_others_can_write_is_refused(store: BundleStore, npm: FakeNpm) -> None:
    store.path.chmod(0o777)
    with pytest.raises(InstallError, match="others can write"):
        await store.provide(SPEC)
