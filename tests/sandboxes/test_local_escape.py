"""Attempts to leave a local sandbox, as its root and as an ordinary user in it. Each one must fail.

Every attempt is harmless if it succeeds: it reads what the test itself has put there, or writes back what it read.
What a sandbox cannot see by default is tested in test_sandbox_isolation.py; here somebody tries hard.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_helpers import StartSandbox, output

from pytest_benchflow.sandboxes import Limits, Sandbox

ROOT_ONLY = os.geteuid() != 0
WHO = ["root"] if ROOT_ONLY else ["root", "nobody"]
#: Numbers of system calls that no program offers by name.
CALLS = {
    "x86_64": {"keyctl": 250, "add_key": 248, "open_by_handle_at": 304, "setns": 308, "bpf": 321, "pidfd_getfd": 438},
    "aarch64": {"keyctl": 219, "add_key": 217, "open_by_handle_at": 265, "setns": 268, "bpf": 280, "pidfd_getfd": 438},
}.get(platform.machine(), {})
needs_numbers = pytest.mark.skipif(not CALLS, reason="the numbers of system calls are not known for this machine")


@pytest.fixture(params=WHO)
def user(request: pytest.FixtureRequest) -> str | None:
    """Who tries."""
    who: str = request.param
    return None if who == "root" else who


@pytest.fixture
def secret() -> Iterator[str]:
    """A word that this process has in its environment, and so has a child of it."""
    word = uuid.uuid4().hex
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, "BF_SECRET": word})
    yield word
    child.kill()
    child.wait()


async def python(sandbox: Sandbox, code: str, user: str | None) -> str:
    """Run Python in the sandbox; return all that it printed."""
    return await output(sandbox, "python3 -", stdin=code.encode(), user=user, timeout_sec=60)


async def call(sandbox: Sandbox, user: str | None, name: str, *arguments: str) -> str:
    """Make a system call; return `done` or the name of its error."""
    code = (
        "import ctypes, errno, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"result = libc.syscall({CALLS[name]}, {', '.join(arguments)})\n"
        "print('done' if result >= 0 else errno.errorcode[ctypes.get_errno()])"
    )
    return (await python(sandbox, code, user)).strip()


async def test_environments_of_the_hosts_processes_are_out_of_reach(
    sandbox: Sandbox, user: str | None, secret: str
) -> None:
    assert secret not in await output(sandbox, "cat /proc/*/environ /proc/*/task/*/environ 2>/dev/null", user=user)


async def test_the_runners_memory_and_files_are_out_of_reach(
    sandbox: Sandbox, user: str | None, tmp_path: Path
) -> None:
    word = uuid.uuid4().hex
    (tmp_path / "key").write_text(word)
    ways = [f"/proc/{pid}/{place}{tmp_path}/key" for pid in (1, "self", os.getpid()) for place in ("root", "cwd")]
    tried = await output(sandbox, f"cat {' '.join(ways)} {tmp_path}/key; cat /proc/*/root{tmp_path}/key", user=user)
    assert word not in tried


async def test_no_descriptor_of_the_runner_is_inherited(sandbox: Sandbox, user: str | None) -> None:
    code = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if int(n) > 2])"
    seen = await output(sandbox, f'python3 -c "{code}"', user=user)
    assert "socket" not in seen
    assert "/bf-" not in seen
    process = await sandbox.open_process(["ls", "/proc/self/fd"], user=user)
    assert (await process.read()).split() == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("place", ["root", "home"])
async def test_home_directories_and_keys_are_not_the_hosts(sandbox: Sandbox, place: str) -> None:
    host = {path.name for path in Path(f"/{place}").iterdir()} if os.access(f"/{place}", os.R_OK) else set()
    seen = set((await output(sandbox, f"ls -A /{place}; ls -A ~/.ssh /root/.ssh 2>/dev/null")).split())
    # An interpreter in a home directory is shown, and nothing beside it.
    shown = (
        {Path(os.path.realpath(sys.base_prefix)).relative_to(f"/{place}").parts[0]}
        if sys.base_prefix.startswith(f"/{place}/")
        else set()
    )
    assert seen & host <= shown


async def test_sockets_of_the_host_without_a_name_in_files_are_out_of_reach_without_network(
    start: StartSandbox, user: str | None
) -> None:
    name = f"bf-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('connected')"
        assert "ConnectionRefused" in await python(await start(network=False), code, user)


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
async def test_without_network_no_address_of_the_host_answers(
    start: StartSandbox, user: str | None, family: str
) -> None:
    address = {"AF_INET": "127.0.0.1", "AF_INET6": "::1"}[family]
    try:
        server = socket.create_server((address, 0), family=getattr(socket, family))
    except OSError:
        pytest.skip(f"the host has no {family}")
    with server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(({address!r}, {port}), 2); print('connected')"
        tried = await python(await start(network=False), code, user)
        assert "connected" not in tried
        assert "Error" in tried


@pytest.mark.parametrize("kind", ["AF_PACKET, socket.SOCK_RAW", "AF_INET, socket.SOCK_RAW, 1"])
async def test_raw_sockets_are_refused(sandbox: Sandbox, user: str | None, kind: str) -> None:
    assert "PermissionError" in await python(sandbox, f"import socket; socket.socket(socket.{kind})", user)


@pytest.mark.parametrize("device", ["b 8 0", "b 254 0", "c 1 1", "c 1 4", "c 10 229", "c 5 1"])
async def test_devices_cannot_be_made(sandbox: Sandbox, user: str | None, device: str) -> None:
    tried = await sandbox.exec(f"mknod /tmp/device {device} && head -c 1 /tmp/device", user=user)
    assert tried.return_code != 0
    assert tried.stdout == ""


async def test_no_device_of_the_host_is_there_to_open(sandbox: Sandbox, user: str | None) -> None:
    assert await output(sandbox, "find / -xdev -type b 2>/dev/null; find /dev -type b", user=user) == ""
    for name in ("mem", "kmem", "port", "kmsg", "fuse", "kvm", "loop-control", "sda", "vda", "net/tun"):
        assert (await sandbox.exec(f"head -c 1 /dev/{name}", user=user)).return_code != 0


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/irq/default_smp_affinity",
        "/proc/mtrr",
    ],
)
async def test_knobs_of_the_kernel_cannot_be_turned(sandbox: Sandbox, user: str | None, path: str) -> None:
    # Opening tells enough: nothing is written.
    tried = await python(sandbox, f"open({path!r}, 'r+b'); print('opened')", user)
    assert "opened" not in tried


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/proc/1/oom_score_adj", "-1000"),
        ("/proc/self/oom_score_adj", "-1000"),
        ("/proc/1/uid_map", "0 0 4294967295"),
        ("/proc/self/uid_map", "0 0 4294967295"),
        ("/proc/self/gid_map", "0 0 4294967295"),
        ("/proc/self/setgroups", "allow"),
    ],
)
async def test_nobody_gets_above_the_others(sandbox: Sandbox, user: str | None, path: str, text: str) -> None:
    tried = await sandbox.exec(f"echo {text} > {path}", user=user)
    if path.endswith("setgroups") and tried.return_code == 0:
        # Where there is no user namespace of its own this only repeats what is.
        assert (await output(sandbox, f"cat {path}", user=user)) == "allow\n"
    else:
        assert tried.return_code != 0


async def test_control_groups_are_out_of_reach(sandbox: Sandbox, user: str | None) -> None:
    assert await output(sandbox, "find /sys -mindepth 1 | head -1; grep cgroup /proc/mounts", user=user) == ""
    attack = "mkdir -p /tmp/cg && mount -t cgroup -o memory none /tmp/cg || mount -t cgroup2 none /tmp/cg"
    assert (await sandbox.exec(attack, user=user)).return_code != 0


@pytest.mark.parametrize(
    "attack",
    [
        "unshare -r true",
        "unshare -n true",
        "unshare -p -f true",
        "unshare -i true",
        "unshare -u true",
        "unshare -C true",
        "nsenter -t 1 -p true",
        "nsenter -t 1 -n true",
        "nsenter --mount=/proc/self/ns/mnt true",
        "mount --bind /etc /mnt",
        "mount -t proc proc /mnt",
        "mount -o remount,rw /",
        "umount -l /proc",
        "dmesg",
        "chmod 4755 /proc/1/exe",
        "test -w /proc/1/mem && head -c 1 /proc/1/mem",
        "kill -STOP 1 && grep -q stopped /proc/1/status",
    ],
)
async def test_what_would_widen_the_sandbox_fails(sandbox: Sandbox, user: str | None, attack: str) -> None:
    assert (await sandbox.exec(attack, user=user, timeout_sec=30)).return_code != 0


@needs_numbers
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        # KEYCTL_GET_KEYRING_ID of the session and of the user.
        ("keyctl", ("0", "-3", "0")),
        ("keyctl", ("0", "-4", "0")),
        ("add_key", ("b'user'", "b'bf-test'", "b'x'", "1", "-2")),
        ("open_by_handle_at", ("-100", "ctypes.create_string_buffer(64)", "0")),
        ("setns", ("os.open('/proc/self/ns/mnt', 0)", "0")),
        ("setns", ("os.open('/proc/self/ns/pid', 0)", "0")),
        ("setns", ("os.pidfd_open(1)", "0x00020000")),
        ("bpf", ("0", "ctypes.create_string_buffer(128)", "128")),
        ("pidfd_getfd", ("os.pidfd_open(1)", "3", "0")),
    ],
)
async def test_system_calls_that_lead_out_are_refused(
    sandbox: Sandbox, user: str | None, name: str, arguments: tuple[str, ...]
) -> None:
    assert await call(sandbox, user, name, *arguments) in ("EPERM", "EACCES", "ENOSYS")


async def test_init_cannot_be_traced(sandbox: Sandbox, user: str | None) -> None:
    code = "import ctypes; print(ctypes.CDLL(None).ptrace(16, 1, 0, 0))"  # PTRACE_ATTACH
    assert await python(sandbox, code, user) == "-1\n"


async def test_the_namespaces_are_not_the_hosts(sandbox: Sandbox, user: str | None) -> None:
    seen = (
        await output(sandbox, "for n in mnt pid ipc uts cgroup; do readlink /proc/self/ns/$n; done", user=user)
    ).split()
    assert len(seen) == 5
    assert not {os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "pid", "ipc", "uts", "cgroup")} & set(seen)


async def test_a_chroot_does_not_lead_out(sandbox: Sandbox) -> None:
    mark = f"/var/tmp/bf-{uuid.uuid4().hex}"
    Path(mark).write_text("host")
    try:
        code = (
            "import os\nos.makedirs('/tmp/jail', exist_ok=True)\n"
            "fd = os.open('/', os.O_RDONLY)\nos.chroot('/tmp/jail')\n"
            "os.fchdir(fd)\n[os.chdir('..') for _ in range(64)]\nos.chroot('.')\n"
            f"print(os.path.exists({mark!r}), os.path.exists('/app'))"
        )
        assert await python(sandbox, code, None) == "False True\n"
    finally:
        os.unlink(mark)


async def test_shared_memory_of_the_host_is_not_seen(sandbox: Sandbox, user: str | None) -> None:
    assert (
        await output(sandbox, "tail -n +2 /proc/sysvipc/shm /proc/sysvipc/msg | grep -v '==>'", user=user)
    ).strip() == ""


@pytest.mark.skipif(ROOT_ONLY, reason="an ordinary user's sandbox knows only root")
async def test_an_ordinary_user_reads_nothing_of_the_verifiers(sandbox: Sandbox) -> None:
    await sandbox.exec("mkdir -m 700 /tests; echo secret > /tests/answer; (sleep 600; echo $KEY) &", env={"KEY": "k3y"})
    attack = "cat /tests/answer; cat /proc/*/environ; cat /proc/*/root/tests/answer; ls /root"
    seen = await output(sandbox, attack, user="nobody")
    assert "secret" not in seen
    assert "k3y" not in seen


async def test_nothing_outlives_the_sandbox(sandbox: Sandbox, user: str | None) -> None:
    mark = f"bf-outlives-{uuid.uuid4().hex}"
    attack = (
        f"trap '' TERM HUP INT; for i in 1 2 3; do (setsid nohup bash -c 'trap \"\" TERM HUP; exec -a {mark} sleep 600'"
        " >/dev/null 2>&1 &) ; done; sleep 0.3"
    )
    await sandbox.exec(attack, user=user)
    assert _alive(mark)
    await sandbox.stop()
    assert not _alive(mark)


def _alive(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(mark.encode()):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


async def test_a_full_disk_is_the_sandboxes_own(start: StartSandbox, user: str | None) -> None:
    greedy, other = await start(limits=Limits(storage_mb=8)), await start()
    assert "No space left" in await output(greedy, "head -c 20000000 /dev/zero > /tmp/big", user=user)
    assert (await other.exec("head -c 20000000 /dev/zero > /tmp/big && echo fits")).stdout == "fits\n"


async def test_a_flood_of_output_does_not_fill_the_runner(sandbox: Sandbox, user: str | None) -> None:
    flood = await sandbox.exec("head -c 100000000 /dev/zero | tr '\\0' x", user=user, timeout_sec=60)
    assert len(flood.stdout) < 48 << 20


async def test_a_spinning_sandbox_can_be_stopped(sandbox: Sandbox, user: str | None) -> None:
    spin = asyncio.create_task(sandbox.exec("for i in 1 2 3 4; do (while :; do :; done) & done; wait", user=user))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    await sandbox.stop()
    assert time.monotonic() - began < 5
    await asyncio.gather(spin, return_exceptions=True)
