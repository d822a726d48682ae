"""Refuse the system calls that a program in a sandbox has no business with.

In a sandbox of the host's root, programs are the host's root with few capabilities. A new user namespace would give
them all capabilities there, and with them parts of the kernel that only root was meant to reach; keyrings and BPF
know no namespaces at all. Docker's default profile refuses the same.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from . import libc

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_FLAGS = 0, 4, 16
#: A 32-bit program on x86-64 says so by this bit or by another architecture; both would dodge the numbers below.
_X32_BIT = 0x40000000
_NAMESPACES = (
    libc.CLONE_NEWNS
    | libc.CLONE_NEWCGROUP
    | libc.CLONE_NEWUTS
    | libc.CLONE_NEWIPC
    | libc.CLONE_NEWUSER
    | libc.CLONE_NEWPID
    | libc.CLONE_NEWNET
)

#: Audit architecture, and the numbers of each system call.
_ARCHITECTURES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "clone": 56,
            "clone3": 435,
            "unshare": 272,
            "setns": 308,
            "mount": 165,
            "umount2": 166,
            "pivot_root": 155,
            "open_tree": 428,
            "move_mount": 429,
            "fsopen": 430,
            "fsmount": 432,
            "mount_setattr": 442,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "bpf": 321,
            "perf_event_open": 298,
            "userfaultfd": 323,
            "open_by_handle_at": 304,
            "kexec_load": 246,
            "kexec_file_load": 320,
            "init_module": 175,
            "finit_module": 313,
            "delete_module": 176,
            "io_uring_setup": 425,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "clone": 220,
            "clone3": 435,
            "unshare": 97,
            "setns": 268,
            "mount": 40,
            "umount2": 39,
            "pivot_root": 41,
            "open_tree": 428,
            "move_mount": 429,
            "fsopen": 430,
            "fsmount": 432,
            "mount_setattr": 442,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "bpf": 280,
            "perf_event_open": 241,
            "userfaultfd": 282,
            "open_by_handle_at": 265,
            "kexec_load": 104,
            "kexec_file_load": 294,
            "init_module": 105,
            "finit_module": 273,
            "delete_module": 106,
            "io_uring_setup": 425,
        },
    ),
}


def install() -> None:
    """Filter the caller's system calls and those of all it will start; needs no_new_privs."""
    known = _ARCHITECTURES.get(os.uname().machine)
    if known is None:
        return
    code = program(*known)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    libc.seccomp_filter(header)
