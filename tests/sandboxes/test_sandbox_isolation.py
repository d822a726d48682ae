"""What a local sandbox can see and touch of its host: the attacks that must fail."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox_helpers import StartSandbox, needs_users, only_root, output

from pytest_benchflow.sandboxes import Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend
from pytest_benchflow.sandboxes.local.guest import hostview
from pytest_benchflow.sandboxes.local.host import Host
from pytest_benchflow.sandboxes.local.layers import _copy


async def test_private_places_of_the_host_are_empty(sandbox: Sandbox) -> None:
    places = "/root /home /srv /mnt /media /run /tmp /var/log /var/spool"
    seen = await output(sandbox, f"find {places} -mindepth 1 -type f -o -mindepth 1 -type s | grep -v /.pyenv/ | head")
    # What every image has there, and not the host's own.
    assert set(seen.split()) <= {"/root/.bashrc", "/root/.profile"}


async def test_the_callers_own_files_are_not_there(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    assert "No such file" in await output(sandbox, f"cat {tmp_path}/key")
    assert "No such file" in await output(sandbox, f"ls {Path(__file__).parent}")


async def test_sockets_of_daemons_are_not_there(sandbox: Sandbox) -> None:
    assert await output(sandbox, "ls /var/run/docker.sock /run/docker.sock /run/dbus 2>/dev/null") == ""
    assert await output(sandbox, "find / -xdev -type s 2>/dev/null") == ""


async def test_password_hashes_are_not_the_hosts(sandbox: Sandbox) -> None:
    shadow = await output(sandbox, "cat /etc/shadow")
    assert shadow.startswith("root:*:")
    assert "$" not in shadow


async def test_what_ordinary_users_may_not_read_is_hidden(sandbox: Sandbox) -> None:
    hidden = [
        path
        for path in (
            "/etc/ssl/private",
            "/etc/sudoers",
            "/etc/shadow-",
            "/etc/security/opasswd",
            "/etc/ssh/ssh_host_rsa_key",
        )
        if Path(path).exists()
    ]
    for path in hidden:
        assert "No such file" in await output(sandbox, f"ls {path}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write to /etc")
async def test_what_becomes_private_during_a_run_is_hidden_too(start: StartSandbox) -> None:
    await start(name="before")
    with tempfile.NamedTemporaryFile(dir="/etc", prefix="bf-secret-") as secret:
        assert "No such file" in await output(await start(name="after"), f"cat {secret.name}")


async def test_the_system_is_there(sandbox: Sandbox) -> None:
    result = await sandbox.exec("python3 -c 'print(6 * 7)' && test -e /etc/passwd && test -x /usr/bin/env")
    assert result.stdout == "42\n"
    assert result.return_code == 0


async def test_writes_never_reach_the_host(sandbox: Sandbox) -> None:
    mark = f"bf-mark-{os.getpid()}"
    result = await sandbox.exec(
        f"for d in /etc /usr /usr/local/bin /opt /tmp /var/tmp /; do touch $d/{mark} || exit 1; done;"
        "rm -rf /usr/share/misc"
    )
    assert result.return_code == 0, result.stderr
    assert not any(Path(d, mark).exists() for d in ("/etc", "/usr", "/usr/local/bin", "/opt", "/tmp", "/var/tmp", "/"))


async def test_init_cannot_be_killed_traced_or_looked_into(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("kill -9 1; kill -INT 1; kill -TERM 1; sleep 0.1")).return_code == 0
    for attack in ("ls -l /proc/1/fd/3", "cat /proc/1/environ", "cat /proc/1/maps", "ls /proc/1/root/"):
        assert "denied" in await output(sandbox, attack)
    assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_capabilities_are_few_and_cannot_grow(sandbox: Sandbox) -> None:
    status = await output(sandbox, "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status")
    assert status.split() == ["CapEff:", "00000000000405fb", "CapBnd:", "00000000000405fb", "NoNewPrivs:", "1"]


ATTACKS = (
    "mount -t tmpfs none /mnt",
    "umount /etc",
    "mknod /tmp/disk b 8 0 && head -c1 /tmp/disk",
    "cat /proc/sys/kernel/panic > /proc/sys/kernel/panic",
    "echo h > /proc/sysrq-trigger",
    "chroot /proc/1/root true",
    "hostname evil",
    "python3 -c 'import time; time.clock_settime(time.CLOCK_REALTIME, time.time())'",
    "unshare -U true",
    "unshare -m true",
    "nsenter -t 1 -m true",
    "mount -o remount,rw /proc/sys",
)


async def test_what_only_the_hosts_root_may_do_fails(sandbox: Sandbox) -> None:
    # Each attack would be harmless if it succeeded: a broken sandbox must not harm the machine that tests it.
    assert [attack for attack in ATTACKS if (await sandbox.exec(attack)).return_code == 0] == []


async def test_devices_are_the_harmless_ones(sandbox: Sandbox) -> None:
    listed = await output(sandbox, "ls /dev")
    assert listed.split() == sorted(
        ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"]
    )
    assert await output(sandbox, "echo x > /dev/null; head -c 2 /dev/zero | od -An -tx1") == " 00 00\n"


async def test_a_terminal_can_be_made(sandbox: Sandbox) -> None:
    code = "import pty, os; m, s = pty.openpty(); print(os.ttyname(s))"
    assert await output(sandbox, f"python3 -c '{code}'") == "/dev/pts/0\n"


async def test_directories_of_a_rollout_are_open_to_every_user_but_for_the_verifiers(sandbox: Sandbox) -> None:
    modes = await output(sandbox, "stat -c %a /logs/agent /logs/verifier /logs/artifacts /tmp /var/tmp /dev/shm /app")
    assert modes.split() == ["777", "755", "777", "1777", "1777", "1777", "755"]


@needs_users
async def test_programs_go_before_init_where_memory_runs_out(sandbox: Sandbox) -> None:
    scores = (await output(sandbox, "cat /proc/self/oom_score_adj /proc/1/oom_score_adj")).split()
    assert int(scores[0]) > int(scores[1])


@needs_users
async def test_setuid_programs_give_nothing(sandbox: Sandbox) -> None:
    await sandbox.exec("cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id; useradd agent")
    assert "euid" not in (await sandbox.exec("/tmp/id", user="agent")).stdout


@pytest.mark.skipif(Host.detect().python_prefix is None, reason="this interpreter is the system's own")
async def test_a_machine_with_only_the_callers_python_lends_it(cache: Path) -> None:
    backend = LocalBackend(replace(Host.detect(), lends_python=True))
    try:
        sandbox = backend.create(SandboxSpec("box"))
        await sandbox.start()
        await sandbox.exec("rm -f /usr/bin/python3* /usr/local/bin/python3*; useradd agent")
        user = "agent" if sandbox.capabilities.users else None
        code = "import json, sys; print(sys.base_prefix)"
        # An interpreter that was moved needs help to find its library, here and there.
        env = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        seen = await output(sandbox, f"python3 -c '{code}'", user=user, env=env)
        assert seen == f"{os.path.realpath(sys.base_prefix)}\n"
        assert "Read-only" in await output(sandbox, f"touch {sys.base_prefix}/x")
    finally:
        await backend.aclose()


@only_root
def test_what_is_closed_though_its_mode_is_open_is_hidden_and_not_copied(tmp_path: Path) -> None:
    (tmp_path / "etc" / "open").mkdir(parents=True)
    (tmp_path / "etc" / "closed").mkdir()
    (tmp_path / "etc" / "closed").chmod(0o005)
    assert hostview._private(str(tmp_path / "etc"), (3, 3), {}) == ["closed"]
    _copy(str(tmp_path / "etc"), str(tmp_path / "copy"), 3)
    assert (tmp_path / "copy" / "open").is_dir()
