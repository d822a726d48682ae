"""Layers lie where overlays can write: in the cache directory, else on the local disk, else in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_helpers import needs_users, only_root

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.local import host
from pytest_benchflow.sandboxes.local.host import LayerDirectory, choose_layer_directory, directory_holds_writes

PRIVILEGED = os.geteuid() == 0


@pytest.fixture
def spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host, "spare_layers", lambda: tmp_path / "spare")
    return tmp_path / "spare"


@pytest.fixture
def unusable(tmp_path: Path) -> Path:
    """Give a path at which no directory can be made."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "layers"


def test_a_local_disk_needs_nothing_else(tmp_path: Path, spare: Path) -> None:
    assert choose_layer_directory(tmp_path / "a" / "layers", privileged=PRIVILEGED) == LayerDirectory(
        tmp_path / "a" / "layers"
    )
    assert list(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "layers"]


def test_a_cache_that_cannot_be_made_is_replaced_with_a_note(unusable: Path, spare: Path) -> None:
    note = f"layers cannot be built in {unusable}: they are in {spare}"
    assert choose_layer_directory(unusable, privileged=PRIVILEGED) == LayerDirectory(spare, notes=(note,))
    assert spare.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("trap", ["link", "open", "file"])
def test_what_somebody_put_at_the_spare_place_is_not_used(unusable: Path, spare: Path, trap: str) -> None:
    if trap == "link":
        spare.symlink_to(spare.parent)
    elif trap == "open":
        spare.mkdir()
        spare.chmod(0o777)
    else:
        spare.touch()
    with pytest.raises(SandboxError, match=r"cache .*/layers cannot be made: Not a directory; set BF_CACHE_DIR"):
        choose_layer_directory(unusable, privileged=PRIVILEGED)


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path, spare: Path) -> None:
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers").chmod(0o777)
    with pytest.raises(SandboxError, match=r"others can write to the layer cache .*/layers; set BF_CACHE_DIR"):
        choose_layer_directory(tmp_path / "layers", privileged=PRIVILEGED)


def test_a_directory_without_attributes_or_whiteouts_does_not_hold_writes() -> None:
    assert not directory_holds_writes(Path("/proc/self"), privileged=PRIVILEGED)


@only_root
def test_attributes_that_the_caller_may_not_set_do_not_count(tmp_path: Path) -> None:
    assert directory_holds_writes(tmp_path, privileged=False)
    assert not directory_holds_writes(tmp_path, privileged=True)
    assert list(tmp_path.iterdir()) == []


READ_ONLY = """
import sys
from pathlib import Path
from pytest_benchflow.sandboxes.local import host
from pytest_benchflow.sandboxes.local.guest import libc

wanted = Path(sys.argv[1], "layers")
wanted.mkdir(mode=0o755)
libc.unshare(libc.CLONE_NEWNS)
libc.mount("none", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
libc.mount("tmpfs", str(wanted), "tmpfs", libc.MS_RDONLY, "mode=755")
for spare in (Path(sys.argv[1], "spare"), Path("/proc/none")):
    host.spare_layers = lambda: spare
    try:
        print(host.choose_layer_directory(wanted, privileged=True).path.name)
    except host.SandboxError as error:
        print(error)
"""


@needs_users
def test_a_read_only_cache_is_replaced_or_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", READ_ONLY, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = f"the layer cache {tmp_path}/layers cannot be written to; set BF_CACHE_DIR to a directory of your own"
    assert run.stdout.splitlines() == ["spare", said], run.stderr


#: Run in a mount namespace of its own: cache and /var/tmp are overlays, as everything is in a container.
CONTAINER = """
import os, subprocess, sys
from pathlib import Path
from pytest_benchflow.sandboxes.local.guest import libc
from pytest_benchflow.sandboxes.local.host import _cover_with_memory

top = sys.argv[1]
libc.unshare(libc.CLONE_NEWNS)
libc.mount("none", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
for name in ("lower", "upper", "work", "merged"):
    os.mkdir(f"{top}/{name}")
libc.mount("overlay", f"{top}/merged", "overlay", 0, f"lowerdir={top}/lower,upperdir={top}/upper,workdir={top}/work")
libc.mount(f"{top}/merged", "/var/tmp", flags=libc.MS_BIND)
environment = {**os.environ, "BF_CACHE_DIR": f"{top}/merged/cache"}
runs = [subprocess.Popen([sys.executable, "-c", sys.argv[2], top], env=environment) for _ in range(2)]
assert [run.wait() for run in runs] == [0, 0]
# As one does that had found the directory unfit before the others were done.
assert _cover_with_memory(Path(f"{top}/merged/cache/layers"))
print([line.split()[2] for line in Path("/proc/mounts").read_text().splitlines() if "/merged/cache/layers " in line])
"""
BUILD = """
import asyncio, sys
from pathlib import Path
from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.sandboxes.local import LocalBackend

async def main():
    backend = LocalBackend()
    sandbox = backend.create(SandboxSpec("x", environment_dir=Path(sys.argv[1])))
    await sandbox.start()
    assert (await sandbox.exec("ls -A /usr/games")).stdout == "new\\n"
    await backend.aclose()

asyncio.run(main())
"""


@needs_users
def test_in_a_container_layers_are_built_in_memory_that_all_processes_share(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nRUN rm -r /usr/games; mkdir /usr/games; touch /usr/games/new\n")
    command = [sys.executable, "-c", CONTAINER, str(tmp_path), BUILD]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout, run.returncode) == ("['tmpfs']\n", 0), run.stderr
