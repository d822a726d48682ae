"""Limits by control groups: what a sandbox asks for is all it gets, and no group is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_helpers import StartSandbox, needs_users, only_root, output

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Limits, Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local import cgroups
from pytest_benchflow.sandboxes.local.backend import LocalBackend
from pytest_benchflow.sandboxes.local.cgroups import Cgroups, Parent, find_parents

PARENTS = find_parents(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
USABLE = {name for parent in PARENTS for name in parent.controllers}


def needs(*controllers: str) -> pytest.MarkDecorator:
    """Skip where the caller may not make groups with these controllers."""
    return pytest.mark.skipif(not USABLE.issuperset(controllers), reason=f"no control groups for {controllers} here")


def groups(pid: int | None = None) -> list[Path]:
    """List the control groups of one runner, by default of this one."""
    return [path for parent in PARENTS for path in parent.path.glob(f"bf-{pid or os.getpid()}-*")]


def value(name: str) -> str:
    """Read a file of the only group that has it."""
    (path,) = [path / name for path in groups() if (path / name).exists()]
    return path.read_text().strip()


def eventually_none(pid: int) -> bool:
    """Wait until a runner has no groups."""
    deadline = time.monotonic() + 10
    while groups(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not groups(pid)


@needs("memory")
async def test_what_takes_too_much_memory_is_killed_and_the_sandbox_goes_on(start: StartSandbox) -> None:
    sandbox = await start(limits=Limits(memory_mb=64))
    assert (await sandbox.exec("tail /dev/zero", timeout_sec=60)).return_code == 137
    assert (await sandbox.exec("echo on")).stdout == "on\n"
    assert "killed for taking more than memory_mb = 64: 1 process" in sandbox.notes
    await sandbox.stop()
    assert "killed for taking more than memory_mb = 64: 1 process" in sandbox.notes


@needs("memory")
async def test_many_small_programs_do_not_take_the_sandbox_down(start: StartSandbox) -> None:
    sandbox = await start(limits=Limits(memory_mb=64))
    hog = "python3 -c \"import time; x = b'x' * 4000000; time.sleep(1)\""
    await sandbox.exec(f"for i in $(seq 24); do {hog} & done; wait", timeout_sec=60)
    assert (await sandbox.exec("echo on")).stdout == "on\n"
    assert any(note.startswith("killed for taking more") for note in sandbox.notes)


@needs("memory")
async def test_files_count_as_memory(start: StartSandbox) -> None:
    sandbox = await start(limits=Limits(memory_mb=64))
    assert "No space left" in await output(sandbox, "head -c 200000000 /dev/zero > /tmp/big", timeout_sec=60)
    assert "No space left" in await output(sandbox, "head -c 200000000 /dev/zero > /dev/shm/big", timeout_sec=60)
    assert (await sandbox.exec("rm /tmp/big; echo on")).stdout == "on\n"


@needs("memory")
async def test_an_upload_that_does_not_fit_fails_and_the_sandbox_goes_on(start: StartSandbox, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 200_000_000)
    sandbox = await start(limits=Limits(memory_mb=64))
    with pytest.raises(SandboxError):
        await sandbox.upload_file(tmp_path / "big", "/tmp/big")
    assert (await sandbox.exec("rm -f /tmp/big; echo on")).stdout == "on\n"


@needs("memory")
async def test_two_sandboxes_have_limits_of_their_own(start: StartSandbox) -> None:
    small, large = await start(limits=Limits(memory_mb=48)), await start(limits=Limits(memory_mb=400))
    take = "python3 -c \"x = b'x' * 120000000; print('done')\""
    codes = await asyncio.gather(*(sandbox.exec(take, timeout_sec=60) for sandbox in (small, large)))
    assert [code.return_code for code in codes] == [137, 0]
    assert not any("killed" in note for note in large.notes)


@needs("cpu")
async def test_the_share_of_cpus_is_the_kernels(start: StartSandbox) -> None:
    await start(limits=Limits(cpus=1.5))
    unified = any(parent.unified for parent in PARENTS if "cpu" in parent.controllers)
    assert value("cpu.max" if unified else "cpu.cfs_quota_us") == ("150000 100000" if unified else "150000")


@needs("pids")
async def test_a_sandbox_full_of_processes_says_so_and_can_be_emptied(start: StartSandbox) -> None:
    sandbox = await start(limits=Limits(pids=60))
    bomb = await sandbox.open_process(["python3", "-c", FILL])
    assert await bomb.read() == b"full\n"
    with pytest.raises(SandboxError, match="no further process can start in the sandbox: Resource temporarily"):
        await sandbox.exec("echo on")
    await bomb.kill()
    assert (await sandbox.exec("echo on")).stdout == "on\n"


FILL = """
import os, time
for number in range(200):
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
    except OSError:
        break
print("full", flush=True)
time.sleep(600)
"""


@needs("pids")
async def test_processes_are_bounded_by_default(sandbox: Sandbox) -> None:
    assert value("pids.max") == "4096"
    assert int(value("pids.current")) >= 1


async def test_the_sandbox_does_not_see_where_its_group_lies(sandbox: Sandbox) -> None:
    assert "bf-" not in await output(sandbox, "cat /proc/self/cgroup; ls /sys")


@needs("pids", "memory", "cpu")
async def test_no_group_is_left_after_stop(start: StartSandbox) -> None:
    sandbox = await start(limits=Limits(cpus=1, memory_mb=128))
    assert len(groups()) == len(PARENTS)
    await sandbox.exec("setsid sleep 5092 & head -c 1000000 /dev/zero > /tmp/x")
    await sandbox.stop()
    assert groups() == []


async def test_no_group_is_left_after_a_cancelled_start(backend: LocalBackend) -> None:
    for delay in (0, 0.002, 0.006):
        sandbox = backend.create(SandboxSpec("cancelled", limits=Limits(memory_mb=128)))
        task = asyncio.create_task(sandbox.start())
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await sandbox.stop()
    assert await asyncio.to_thread(eventually_none, os.getpid())


RUNNER = """
import asyncio
from pytest_benchflow.sandboxes import Limits, SandboxSpec
from pytest_benchflow.sandboxes.local import LocalBackend

async def main():
    sandbox = LocalBackend().create(SandboxSpec("s", limits=Limits(cpus=1, memory_mb=128)))
    await sandbox.start()
    print("up", flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


@needs("pids")
def test_no_group_is_left_of_a_killed_runner(cache: Path) -> None:
    runner = subprocess.Popen([sys.executable, "-c", RUNNER], stdout=subprocess.PIPE)
    assert runner.stdout is not None
    with runner.stdout:
        assert runner.stdout.readline() == b"up\n"
    assert groups(runner.pid)
    runner.send_signal(signal.SIGKILL)
    runner.wait(10)
    assert eventually_none(runner.pid)


@needs("pids")
def test_what_a_dead_runner_left_goes_at_the_next_start() -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    parent = PARENTS[0].path
    left, own = parent / f"bf-{dead.pid}-1-1", parent / f"bf-{os.getpid()}-{cgroups.start_time(os.getpid())}-0"
    for path in (left, own):
        path.mkdir()
    try:
        Cgroups.detect()
        assert not left.exists()
        assert own.exists()
    finally:
        own.rmdir()


async def test_limits_that_cannot_be_enforced_are_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "find_parents", lambda *_: [])
    backend = LocalBackend()
    try:
        sandbox = backend.create(SandboxSpec("x", limits=Limits(cpus=1, memory_mb=512)))
        await sandbox.start()
        assert "cpus and memory_mb are not enforced in the local sandbox" in sandbox.notes
    finally:
        await backend.aclose()


@needs("cpu", "memory")
async def test_limits_that_are_enforced_need_no_note(start: StartSandbox) -> None:
    assert list((await start(limits=Limits(cpus=1, memory_mb=512))).notes) == []


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        (
            Parent(Path("/x"), ("cpu", "memory", "pids"), unified=True),
            {
                "pids.max": "4096",
                "memory.max": "1048576",
                "-memory.swap.max": "0",
                "cpu.max": "50000 100000",
            },
        ),
        (
            Parent(Path("/x"), ("memory",)),
            {"memory.limit_in_bytes": "1048576", "-memory.memsw.limit_in_bytes": "1048576"},
        ),
        (Parent(Path("/x"), ("cpu",)), {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}),
    ],
)
def test_each_generation_has_its_own_files(parent: Parent, expected: dict[str, str]) -> None:
    assert {name: value for _, name, value in parent.settings(0.5, 1)} == expected


def unified_tree(top: Path, own: str, *, enabled: dict[str, str], occupied: tuple[str, ...]) -> str:
    """Make what looks like the tree of v2, and return the table of mounts that shows it."""
    (top / own).mkdir(parents=True, exist_ok=True)
    for path in {top, top / own, *(top / parent for parent in Path(own).parents)}:
        name = str(path.relative_to(top))
        (path / "cgroup.controllers").write_text("cpu io memory pids\n")
        (path / "cgroup.subtree_control").write_text(enabled.get(name, ""))
        (path / "cgroup.procs").write_text("1\n" if name in occupied else "")
        if path != top:
            (path / "cgroup.type").write_text("domain\n")
    return f"30 20 0:25 / {top} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("own", "enabled", "occupied", "expected"),
    [
        ("a.slice/x.scope", {"a.slice": "cpu memory pids"}, ("a.slice/x.scope",), "a.slice"),
        ("a.slice/x.scope", {"a.slice": "cpu memory pids"}, ("a.slice/x.scope", "a.slice"), None),
        (".", {".": "cpu memory pids"}, (".",), "."),
        ("x", {".": "cpu io memory pids"}, ("x", "."), "."),
    ],
)
def test_in_the_unified_tree_groups_lie_where_no_processes_are(
    tmp_path: Path, own: str, enabled: dict[str, str], occupied: tuple[str, ...], expected: str | None
) -> None:
    mounts = unified_tree(tmp_path, own, enabled=enabled, occupied=occupied)
    found = find_parents(mounts, f"0::/{'' if own == '.' else own}\n")
    place = [] if expected is None else [Parent(tmp_path / expected, ("cpu", "memory", "pids"), unified=True)]
    assert found == place


@pytest.mark.parametrize(
    ("own", "is_container", "expected"),
    [("ci.service", False, False), (".", True, True), (".", False, False)],
)
@needs_users
def test_root_divides_only_the_group_of_a_container(
    tmp_path: Path, own: str, is_container: bool, expected: bool
) -> None:
    unified_tree(tmp_path, own, enabled={}, occupied=(own,))
    if is_container:
        (tmp_path / "cgroup.type").write_text("domain\n")
    assert cgroups._is_delegated(tmp_path / own, tmp_path) is expected


@pytest.mark.parametrize(("controllers", "expected"), [("cpu pids", True), ("io", False)])
@only_root
def test_a_user_divides_the_group_that_is_his(tmp_path: Path, controllers: str, expected: bool) -> None:
    unified_tree(tmp_path, "ci.service", enabled={}, occupied=("ci.service",))
    (tmp_path / "ci.service" / "cgroup.controllers").write_text(controllers)
    assert cgroups._is_delegated(tmp_path / "ci.service", tmp_path) is expected
    assert not cgroups._is_delegated(Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup"))


@pytest.fixture
def real_group() -> Iterator[Path]:
    """Make a group in the unified tree of this host, whatever controllers that has."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    top = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    if top is None or not os.access(top, os.W_OK):
        pytest.skip("no unified tree of control groups that the caller may write to")
    group = top / f"bf-test-{os.getpid()}"
    group.mkdir()
    yield group
    for path in (group / "bf-runner", group):
        if path.exists():
            path.rmdir()


def test_the_processes_of_a_group_move_into_one_inside_it(real_group: Path) -> None:
    program = subprocess.Popen(["sleep", "5093"])
    try:
        (real_group / "cgroup.procs").write_text(str(program.pid))
        assert cgroups._vacate(real_group)
        assert (real_group / "cgroup.procs").read_text() == ""
        assert (real_group / "bf-runner" / "cgroup.procs").read_text() == f"{program.pid}\n"
        assert cgroups._vacate(real_group)
    finally:
        program.kill()
        program.wait()


def test_a_mount_that_shows_another_part_of_the_tree_is_not_used() -> None:
    assert find_parents("30 20 0:25 /docker/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/docker/b\n") == []


def test_a_tree_that_is_not_the_callers_is_not_used(tmp_path: Path) -> None:
    assert find_parents(f"30 20 0:25 / {tmp_path}/none rw - cgroup cgroup rw,memory\n", "4:memory:/\n") == []
