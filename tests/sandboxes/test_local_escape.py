"""Attempts to leave a local sandbox, as its root and as an ordinary user in it. Each one must fail.

Every attempt is harmless if it succeeds: it reads what the test itself has put there, or writes back what it read.
What a sandbox cannot see by default is tested in test_sandbox_isolation.py; here somebody tries hard.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import wait_for
from sandbox_helpers import StartSandbox, output

from pytest_benchflow.sandboxes import Limits, Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend
from pytest_benchflow.sandboxes.local.guest.security import KEPT

ROOT_ONLY = os.geteuid() != 0
WHO = ["root"] if ROOT_ONLY else ["root", "nobody"]
#: Numbers of system calls that no program offers by name, on x86_64 and aarch64.
NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "request_key": (249, 218),
    "setns": (308, 268),
    "syslog": (103, 116),
    "userfaultfd": (323, 282),
}
COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine())
CALLS = {} if COLUMN is None else {name: numbers[COLUMN] for name, numbers in NUMBERS.items()}
#: A software clock of the caller's own: what any user may count where nothing forbids it.
PERF = (
    "ctypes.create_string_buffer((1).to_bytes(4, 'little') + (112).to_bytes(4, 'little') + bytes(32) + b'\\x60', 128)"
)
#: The version of Landlock that this kernel has; 0 or less for none.
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
    assert (await output(sandbox, "ls /proc/$$/fd; true", user=user)).split() == ["0", "1", "2"]
    process = await sandbox.open_process(["ls", "/proc/self/fd"], user=user)
    assert (await process.read()).split() == [b"0", b"1", b"2", b"3"]


PRIVATE = [
    path
    for path in (Path.home(), Path("/home"), Path("/srv"), Path("/var/tmp"), Path("/dev/shm"))
    if os.access(path, os.W_OK)
]


async def test_what_is_in_private_places_of_the_host_is_not_seen(sandbox: Sandbox) -> None:
    folders = [place / f".bf-{uuid.uuid4().hex}" for place in PRIVATE]
    try:
        for folder in folders:
            folder.mkdir(mode=0o777)
            (folder / "id_rsa").write_text("host-key")
        for folder in folders:
            looks = f"cat {folder}/id_rsa; ls -A {folder.parent}; find / -xdev -name '{folder.name}'"
            tried = await output(sandbox, looks)
            assert "host-key" not in tried
            assert folder.name not in tried.replace(f"cat: {folder}", "")
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(ROOT_ONLY, reason="only root can put something private there")
async def test_what_others_may_not_read_on_the_host_is_not_there(cache: Path) -> None:
    backend, made = LocalBackend(), []
    try:
        for place in ("/etc", "/opt", "/etc/ssl", "/usr/local"):
            folder, file, deep = (Path(place, f"bf-{uuid.uuid4().hex}") for _ in range(3))
            made.append((folder, file, deep))
            folder.mkdir(mode=0o700)
            (deep / "conf").mkdir(parents=True)
            for path in (file, deep / "conf/key"):
                path.touch(mode=0o640)
            for path in (file, folder / "key", deep / "conf/key"):
                path.write_text("host-key")
        sandbox = backend.create(SandboxSpec("private"))
        await sandbox.start()
        for user in (None, "nobody"):
            for folder, file, deep in made:
                looks = f"cat {file} {folder}/key {deep}/conf/key; ls {file.parent}"
                tried = await output(sandbox, looks, user=user)
                assert "host-key" not in tried
                assert [line for line in tried.splitlines() if line in (file.name, folder.name)] == []
    finally:
        await backend.aclose()
        for folder, file, deep in made:
            file.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(deep, ignore_errors=True)


async def test_sockets_of_the_hosts_daemons_are_out_of_reach(sandbox: Sandbox, user: str | None) -> None:
    for place in ("/run", "/tmp", "/var/tmp"):
        path = f"{place if os.access(place, os.W_OK) else '/tmp'}/bf-{uuid.uuid4().hex}.sock"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            os.chmod(path, 0o777)
            try:
                server.listen()
                code = f"import socket; socket.socket(socket.AF_UNIX).connect({path!r}); print('connected')"
                assert "FileNotFoundError" in await python(sandbox, code, user), place
            finally:
                os.unlink(path)


async def test_sockets_of_the_host_without_a_name_in_files_are_out_of_reach(sandbox: Sandbox, user: str | None) -> None:
    name = f"bf-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('connected')"
        assert "ConnectionRefused" in await python(sandbox, code, user)


async def test_the_machine_below_is_out_of_reach(sandbox: Sandbox, user: str | None) -> None:
    code = "import socket; socket.socket(socket.AF_VSOCK); print('opened')"
    tried = await python(sandbox, code, user)
    assert "PermissionError" in tried or "not supported" in tried


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
async def test_the_hosts_loopback_does_not_answer(sandbox: Sandbox, user: str | None, family: str) -> None:
    address = {"AF_INET": "127.0.0.1", "AF_INET6": "::1"}[family]
    try:
        server = socket.create_server((address, 0), family=getattr(socket, family))
    except OSError:
        pytest.skip(f"the host has no {family}")
    with server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(({address!r}, {port}), 2); print('connected')"
        tried = await python(sandbox, code, user)
        assert "connected" not in tried
        assert "Error" in tried


async def test_raw_sockets_are_refused(sandbox: Sandbox, user: str | None) -> None:
    for kind in ("AF_PACKET, socket.SOCK_RAW", "AF_INET, socket.SOCK_RAW, 1"):
        assert "PermissionError" in await python(sandbox, f"import socket; socket.socket(socket.{kind})", user), kind


async def test_devices_cannot_be_made(sandbox: Sandbox, user: str | None) -> None:
    for device in ("b 8 0", "b 254 0", "c 1 1", "c 1 4", "c 10 229", "c 5 1"):
        for place in ("/tmp", "/dev", "/dev/shm"):
            tried = await sandbox.exec(f"mknod {place}/device {device} && head -c 1 {place}/device", user=user)
            assert (tried.return_code != 0, tried.stdout) == (True, ""), (device, place)


async def test_what_is_done_to_a_device_is_not_done_to_the_hosts(sandbox: Sandbox, user: str | None) -> None:
    names = ("null", "zero", "full", "random", "urandom", "tty")
    before = [os.stat(f"/dev/{name}").st_ctime_ns for name in names]
    paths = " ".join([*(f"/dev/{name}" for name in names), *(f"/proc/{name}" for name in HIDDEN)])
    await sandbox.exec(f"chmod 666 {paths}", user=user)
    assert [os.stat(f"/dev/{name}").st_ctime_ns for name in names] == before


async def test_what_the_kernel_tells_keeps_its_mode(sandbox: Sandbox, user: str | None) -> None:
    # The mode that they have: in a /proc that is shared with the host, any other would become the host's.
    names = ("cpuinfo", "meminfo", "tty/drivers", "sysvipc/shm", "pressure/cpu", "cmdline")
    for path in (f"/proc/{name}" for name in names if os.path.exists(f"/proc/{name}")):
        mode = f"{os.stat(path).st_mode & 0o777:o}"
        assert (await sandbox.exec(f"chmod {mode} {path}", user=user)).return_code != 0, path


async def test_what_is_done_to_files_of_the_network_is_not_done_to_the_hosts(
    sandbox: Sandbox, user: str | None
) -> None:
    if (await output(sandbox, "readlink /proc/self/ns/net")).strip() == os.readlink("/proc/self/ns/net"):
        pytest.skip("the sandbox shares the host's network")
    before = os.stat("/proc/self/net/dev").st_mode
    await sandbox.exec("chmod 640 /proc/self/net/dev", user=user)
    assert os.stat("/proc/self/net/dev").st_mode == before


async def test_no_device_of_the_host_is_there_to_open(sandbox: Sandbox, user: str | None) -> None:
    seen = set((await output(sandbox, "find / -xdev -type b -o -xdev -type c; find /dev/ -type b -o -type c")).split())
    harmless = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts/ptmx"}
    assert {os.path.normpath(path) for path in seen} <= harmless
    assert (await output(sandbox, "head -c 1 /dev/zero | wc -c; echo x >/dev/null", user=user)).strip() == "1"


async def test_no_mount_lets_programs_gain_rights(sandbox: Sandbox) -> None:
    devices = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")}
    masks = {f"/proc/{name}" for name in HIDDEN}
    for line in (await output(sandbox, "cut -d' ' -f5,6 /proc/self/mountinfo")).splitlines():
        point, _, flags = line.partition(" ")
        # A single device over a file can neither be entered nor run.
        if point not in devices | masks:
            assert "nosuid" in flags.split(","), line
            # Nobody can make a device in these.
            assert "nodev" in flags.split(",") or point in ("/dev", "/dev/pts"), line


async def test_init_has_no_more_rights_than_its_programs(sandbox: Sandbox) -> None:
    seen = await output(sandbox, "grep -h '^Cap' /proc/1/status /proc/self/status")
    few = f"{sum(1 << capability for capability in KEPT):016x}"
    sets = {line.split()[1] for line in seen.splitlines()}
    assert sets == {few, f"{0:016x}"}


HIDDEN = [
    name
    for name in (
        *("keys", "key-users", "kmsg", "kcore", "timer_list", "sched_debug"),
        *("kpagecgroup", "kpagecount", "kpageflags", "pagetypeinfo", "slabinfo", "vmallocinfo"),
    )
    if os.path.exists(f"/proc/{name}")
]


async def test_what_the_kernel_tells_about_the_host_is_empty(sandbox: Sandbox, user: str | None) -> None:
    told = {name: await output(sandbox, f"head -c 100 /proc/{name}", user=user) for name in HIDDEN}
    assert {name: text for name, text in told.items() if text} == {}


KNOBS = """
/proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/overcommit_memory /proc/sys/net/ipv4/ip_forward
/proc/sys/fs/binfmt_misc/register /proc/irq/default_smp_affinity /proc/mtrr /proc/sysrq-trigger /proc/acpi/wakeup
/proc/dynamic_debug/control
"""


async def test_knobs_of_the_kernel_cannot_be_turned(sandbox: Sandbox, user: str | None) -> None:
    # Opening tells enough: nothing is written.
    code = (
        f"for path in {[path for path in KNOBS.split() if os.path.exists(path)]!r}:\n"
        "    try: open(path, 'r+b', buffering=0)\n"
        "    except OSError: pass\n"
        "    else: print('opened', path)\n"
        "print('tried')"
    )
    assert await python(sandbox, code, user) == "tried\n"


@pytest.mark.skipif(ROOT_ONLY, reason="an ordinary user can write to none of this anyway")
async def test_controls_of_the_host_are_on_read_only_mounts(sandbox: Sandbox) -> None:
    names = [
        name
        for name in ("sys", "irq", "bus", "fs", "acpi", "cpuinfo", "stat", "driver")
        if os.path.exists(f"/proc/{name}")
    ]
    code = f"import os; print([n for n in {names!r} if not os.statvfs(f'/proc/{{n}}').f_flag & os.ST_RDONLY])"
    assert await python(sandbox, code, None) == "[]\n"


async def test_nobody_gets_above_the_others(sandbox: Sandbox, user: str | None) -> None:
    whole = "0 0 4294967295"
    for path, text in (
        ("/proc/1/oom_score_adj", "-1000"),
        ("/proc/self/oom_score_adj", "-1000"),
        ("/proc/1/uid_map", whole),
        ("/proc/self/uid_map", whole),
        ("/proc/self/gid_map", whole),
    ):
        assert (await sandbox.exec(f"echo {text} > {path}", user=user)).return_code != 0, path
    if (await sandbox.exec("echo allow > /proc/self/setgroups", user=user)).return_code == 0:
        # Where there is no user namespace of its own this only repeats what is.
        assert (await output(sandbox, "cat /proc/self/setgroups", user=user)) == "allow\n"


async def test_control_groups_are_out_of_reach(sandbox: Sandbox, user: str | None) -> None:
    assert await output(sandbox, "find /sys -mindepth 1 | head -1; grep -E ' cgroup2? ' /proc/mounts", user=user) == ""
    attack = "mkdir -p /tmp/cg && mount -t cgroup -o memory none /tmp/cg || mount -t cgroup2 none /tmp/cg"
    assert (await sandbox.exec(attack, user=user)).return_code != 0


ATTACKS = (
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
    "head -c 1 /proc/1/exe",
    "readlink /proc/1/fd/0",
    "cat /proc/1/root/etc/hostname",
    "test -w /proc/1/mem && head -c 1 /proc/1/mem",
    "kill -STOP 1 && grep -q stopped /proc/1/status",
)


async def test_what_would_widen_the_sandbox_fails(sandbox: Sandbox, user: str | None) -> None:
    tried = {attack: await sandbox.exec(attack, user=user, timeout_sec=30) for attack in ATTACKS}
    assert [attack for attack, done in tried.items() if done.return_code == 0] == []


ESCAPES = (
    # KEYCTL_GET_KEYRING_ID of the session and of the user.
    ("keyctl", ("0", "-3", "0")),
    ("keyctl", ("0", "-4", "0")),
    ("add_key", ("b'user'", "b'bf-test'", "b'x'", "1", "-2")),
    ("open_by_handle_at", ("-100", "ctypes.create_string_buffer(64)", "0")),
    ("setns", ("os.open('/proc/self/ns/mnt', 0)", "0")),
    ("setns", ("os.open('/proc/self/ns/pid', 0)", "0")),
    ("setns", ("os.pidfd_open(1)", "0x00020000")),
    # SYSLOG_ACTION_READ_ALL, which some hosts allow to everyone.
    ("syslog", ("3", "ctypes.create_string_buffer(64)", "64")),
    ("bpf", ("0", "ctypes.create_string_buffer(128)", "128")),
    ("pidfd_getfd", ("os.pidfd_open(1)", "3", "0")),
    ("request_key", ("b'user'", "b'bf-test'", "None", "0")),
    ("perf_event_open", (PERF, "0", "-1", "-1", "0")),
    ("userfaultfd", ("os.O_CLOEXEC | 1",)),
    ("io_uring_setup", ("1", "ctypes.create_string_buffer(256)")),
    ("clone3", ("None", "0")),
)


@needs_numbers
async def test_system_calls_that_lead_out_are_refused(sandbox: Sandbox, user: str | None) -> None:
    for name, arguments in ESCAPES:
        answer = await call(sandbox, user, name, *arguments)
        assert answer in ("EPERM", "EACCES", "ENOSYS"), (name, arguments, answer)


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
    libc = ctypes.CDLL(None)
    key = 0x5BF00000 + uuid.uuid4().int % 0x100000
    segment = libc.shmget(key, 4096, 0o1666)  # IPC_CREAT, open to everyone
    assert segment >= 0
    try:
        code = f"import ctypes; print(ctypes.CDLL(None).shmget({key}, 4096, 0o666))"
        assert await python(sandbox, code, user) == "-1\n"
        listed = await output(sandbox, "tail -n +2 /proc/sysvipc/shm /proc/sysvipc/msg | grep -v '==>'", user=user)
        assert listed.strip() == ""
    finally:
        libc.shmctl(segment, 0, None)  # IPC_RMID


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
        " >/dev/null 2>&1 &) ; done"
    )
    await sandbox.exec(attack, user=user)
    wait_for(lambda: len(_alive(mark)) == 3, "the start of the programs")
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


async def test_a_spinning_sandbox_can_be_stopped(sandbox: Sandbox, user: str | None) -> None:
    spin = asyncio.create_task(sandbox.exec("for i in 1 2 3 4; do (while :; do :; done) & done; wait", user=user))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    await sandbox.stop()
    assert time.monotonic() - began < 5
    await asyncio.gather(spin, return_exceptions=True)
