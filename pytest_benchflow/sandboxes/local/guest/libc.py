"""The few system calls that the standard library lacks, each raising OSError with what was tried."""

from __future__ import annotations

import ctypes
import os
from typing import NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_NOATIME = 0x400
MS_NODIRATIME = 0x800
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_RELATIME = 0x200000
MNT_DETACH = 0x2

_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_RENAME_WHITEOUT = 0x4
#: The same number on every machine, of Linux 5.12 and later.
_MOUNT_SETATTR = 442

PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
# Found here and not at the first call, which would be in every sandbox's own memory.
_capset, _mount, _pivot_root, _prctl, _syscall, _umount2, _unshare = (
    getattr(_libc, name) for name in ("capset", "mount", "pivot_root", "prctl", "syscall", "umount2", "unshare")
)
#: Older releases of musl have none.
_renameat2 = getattr(_libc, "renameat2", None)
_mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
_syscall.argtypes = (ctypes.c_long, *(ctypes.c_ulong,) * 5)


def _check(result: int, what: str) -> None:
    if result != 0:
        _fail(what)


def _fail(what: str) -> NoReturn:
    error = ctypes.get_errno()
    raise OSError(error, f"{what}: {os.strerror(error)}")


def unshare(flags: int) -> None:
    """Move the caller into new namespaces."""
    if _unshare(flags):
        _fail(f"unshare({flags:#x})")


def become_root_of_a_user_namespace(flags: int = 0) -> None:
    """Move the caller into a user namespace, and others that the flags name, where it is root."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(flags | CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str = "") -> None:
    """Mount `source` on `target`."""
    result = _mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        flags,
        os.fsencode(data) if data else None,
    )
    _check(result, f"mount {kind or 'bind'} on {target} ({data or source})")


def detach(target: str) -> None:
    """Unmount `target` and all below it as soon as nothing uses it."""
    _check(_umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root of this mount namespace and put the former one on `old`."""
    _check(_pivot_root(os.fsencode(new), os.fsencode(old)), f"pivot_root {new}")


def rename_leaving_whiteout(source: str, target: str) -> None:
    """Rename a file as overlays do in the directory that they write to."""
    if _renameat2 is not None:
        result = _renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_WHITEOUT)
        _check(result, f"rename {source} leaving a whiteout")
    else:
        os.rename(source, target)


def prctl(option: int, value: int = 0, address: int = 0) -> None:
    """Set one property of the calling process."""
    if _prctl(option, value, address, 0, 0):
        _fail(f"prctl({option}, {value})")


def syscall(number: int, first: int, second: int, third: int = 0, fourth: int = 0, fifth: int = 0) -> int:
    """Make a system call by its number; -1 if it failed or does not exist."""
    result: int = _syscall(number, first, second, third, fourth, fifth)
    return result


def restrict_mounts(target: str, flags: int) -> bool:
    """Add flags to a mount and to all below it; False if the kernel cannot."""
    path = ctypes.create_string_buffer(os.fsencode(target))
    attributes = (ctypes.c_uint64 * 4)(flags)
    at = ctypes.c_ulong(_AT_FDCWD).value
    address, size = ctypes.addressof(attributes), ctypes.sizeof(attributes)
    return syscall(_MOUNT_SETATTR, at, ctypes.addressof(path), _AT_RECURSIVE, address, size) == 0


class Capabilities:
    """A set of capabilities, in the form the kernel reads."""

    def __init__(self, mask: int) -> None:
        low, high = mask & 0xFFFFFFFF, mask >> 32
        self._header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        self._data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)

    def assume(self) -> None:
        """Make them the permitted and effective ones of the caller, and nothing inheritable."""
        if _capset(self._header, self._data):
            _fail("capset")
