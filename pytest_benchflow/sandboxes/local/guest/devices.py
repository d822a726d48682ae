"""Mount the sandbox's own /dev and /proc, and bring its loopback up."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from . import libc

_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_SAFE = libc.MS_NOSUID | libc.MS_NOEXEC
#: Real root could turn the host's knobs through these.
_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs")
_EMPTIED = ("acpi", "asound", "scsi")
_MASKED = (
    *("kcore", "keys", "key-users", "timer_list", "sched_debug", "kmsg", "latency_stats"),
    *("kpagecgroup", "kpagecount", "kpageflags", "pagetypeinfo", "slabinfo", "vmallocinfo"),
)

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def mount_dev(target: str, shm_options: str) -> None:
    """Mount a private /dev with harmless devices only."""
    libc.mount("tmpfs", target, "tmpfs", _SAFE | libc.MS_NODEV, "mode=755,size=1m")
    for name in _NODES:
        path = f"{target}/{name}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        libc.mount(f"/dev/{name}", path, flags=libc.MS_BIND)
    for name, link in _LINKS.items():
        os.symlink(link, f"{target}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{target}/{name}")
    libc.mount("devpts", f"{target}/pts", "devpts", _SAFE, "newinstance,ptmxmode=0666,mode=620")
    libc.mount("tmpfs", f"{target}/shm", "tmpfs", _SAFE | libc.MS_NODEV, f"mode=1777{shm_options}")


def mount_proc(target: str, *, privileged: bool) -> None:
    """Mount the /proc of the caller's pid namespace, without the host's controls."""
    libc.mount("proc", target, "proc", _SAFE | libc.MS_NODEV)
    for name in _READ_ONLY if privileged else ():
        if os.path.exists(path := f"{target}/{name}"):
            libc.mount(path, path, flags=libc.MS_BIND)
            flags = libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | _SAFE | libc.MS_NODEV
            libc.mount("none", path, flags=flags)
    for name in _EMPTIED:
        if os.path.isdir(path := f"{target}/{name}"):
            libc.mount("tmpfs", path, "tmpfs", _SAFE | libc.MS_NODEV | libc.MS_RDONLY)
    for name in _MASKED:
        if os.path.exists(path := f"{target}/{name}"):
            libc.mount("/dev/null", path, flags=libc.MS_BIND)


def raise_loopback() -> None:
    """Bring `lo` up in a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
