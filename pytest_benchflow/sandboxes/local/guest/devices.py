"""Mount the sandbox's own /dev and /proc."""

from __future__ import annotations

import os
import stat

from . import libc

_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_SAFE = libc.MS_NOSUID | libc.MS_NOEXEC
#: Any directory that every sandbox has.
_PLACE = "/mnt"
_EMPTIED = ("acpi", "asound", "scsi")
_MASKED = (
    *("kcore", "keys", "key-users", "timer_list", "sched_debug", "kmsg", "latency_stats"),
    *("kpagecgroup", "kpagecount", "kpageflags", "pagetypeinfo", "slabinfo", "vmallocinfo"),
)


def mount_dev(target: str, shm_options: str, *, privileged: bool) -> None:
    """Mount a private /dev with harmless devices only."""
    libc.mount("tmpfs", target, "tmpfs", _SAFE | (0 if privileged else libc.MS_NODEV), "mode=755,size=1m")
    for name in _NODES:
        if privileged:
            _make_node(name, f"{target}/{name}")
        else:
            _bind_node(name, f"{target}/{name}")
    for name, link in _LINKS.items():
        os.symlink(link, f"{target}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{target}/{name}")
    libc.mount("devpts", f"{target}/pts", "devpts", _SAFE, "newinstance,ptmxmode=0666,mode=620")
    libc.mount("tmpfs", f"{target}/shm", "tmpfs", _SAFE | libc.MS_NODEV, f"mode=1777{shm_options}")


def _make_node(name: str, path: str) -> None:
    """Make a device of the sandbox's own: what real root does to the mode of the host's is done to the host."""
    try:
        os.mknod(path, stat.S_IFCHR, os.stat(f"/dev/{name}").st_rdev)
    except PermissionError:  # a container's root may not have the right to
        _bind_node(name, path)
        libc.mount("none", path, flags=libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | _SAFE)
    else:
        os.chmod(path, 0o666)  # noqa: S103 - as everywhere


def _bind_node(name: str, path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    libc.mount(f"/dev/{name}", path, flags=libc.MS_BIND)


def mount_proc(target: str) -> None:
    """Mount the /proc of the caller's pid namespace."""
    libc.mount("proc", target, "proc", _SAFE | libc.MS_NODEV)


def cover_proc(*, privileged: bool) -> int:
    """Cover what /proc tells of the host, and return a descriptor of it as it was.

    For programs that are real root all but processes becomes read-only: they could turn the host's knobs, and even the
    modes of files there are the host's own. What a process may say of itself it can: logins need that.
    """
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    covered = {*_EMPTIED, *_MASKED}
    if privileged:
        # Binding what is read-only already is one call for each, and not two.
        libc.mount("/proc", _PLACE, flags=libc.MS_BIND)
        flags = libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | _SAFE | libc.MS_NODEV
        libc.mount("none", _PLACE, flags=flags)
        with os.scandir("/proc") as entries:
            names = [entry.name for entry in entries if not entry.name.isdigit() and not entry.is_symlink()]
        for name in names:
            if name not in covered:
                libc.mount(f"{_PLACE}/{name}", f"/proc/{name}", flags=libc.MS_BIND)
        libc.detach(_PLACE)
    for name in _EMPTIED:
        if os.path.isdir(path := f"/proc/{name}"):
            libc.mount("tmpfs", path, "tmpfs", _SAFE | libc.MS_NODEV | libc.MS_RDONLY)
    for name in _MASKED:
        if os.path.exists(path := f"/proc/{name}"):
            libc.mount("/dev/null", path, flags=libc.MS_BIND)
    return proc
