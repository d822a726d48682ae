"""Take from a program in the sandbox what it must not have: capabilities and system calls.

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

#: Docker's default capabilities without MKNOD, NET_RAW, AUDIT_WRITE and SETFCAP.
KEPT = (
    0,  # CHOWN
    1,  # DAC_OVERRIDE
    3,  # FOWNER
    4,  # FSETID
    5,  # KILL
    6,  # SETGID
    7,  # SETUID
    8,  # SETPCAP
    10,  # NET_BIND_SERVICE
    18,  # SYS_CHROOT
)


class Privileges:
    """What a sandbox keeps, worked out before any is forked."""

    def __init__(self, *, privileged: bool) -> None:
        with open("/proc/sys/kernel/cap_last_cap") as file:
            last = int(file.read())
        self._dropped = [capability for capability in range(last + 1) if capability not in KEPT]
        self._kept = libc.Capabilities(sum(1 << capability for capability in KEPT))
        self._filter = Filter(privileged=privileged)

    def drop(self) -> None:
        """Give up everything else for good, for the caller and all that it will start."""
        for capability in self._dropped:
            libc.prctl(libc.PR_CAPBSET_DROP, capability)
        self._kept.assume()
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        self._filter.install()
        # A program inside that runs as the same user could otherwise trace init and reach its socket.
        libc.prctl(libc.PR_SET_DUMPABLE, 0)


_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
#: Programs of the x32 kind on x86-64 set this bit, which would dodge the numbers below.
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

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
#: Numbers on x86_64 and aarch64.
_REFUSED = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "request_key": (249, 218),
    "setns": (308, 268),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
}
#: Their arguments lie out of a filter's sight; programs fall back to older calls when these do not exist.
_ABSENT = {"clone3": (435, 435), "io_uring_setup": (425, 425)}
_CLONE, _UNSHARE = (56, 220), (272, 97)
#: Sockets to the machine that runs this one, which no network namespace holds back.
_SOCKET, _AF_VSOCK = (41, 198), 40
#: Calls that change an owner, each with the number of the argument that is the user; the group follows.
_CHOWN = {"chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54)}
_USER_ARGUMENT = {"chown": 1, "lchown": 1, "fchown": 1, "fchownat": 2}
_ROOT, _UNCHANGED = 0, 0xFFFFFFFF


class Filter:
    """The filter for this machine, made once; other machines than those known go without."""

    def __init__(self, *, privileged: bool) -> None:
        known = _MACHINES.get(os.uname().machine)
        code = _program(*known, privileged=privileged) if known else b""
        self._code = ctypes.create_string_buffer(code, len(code))
        header = struct.pack("@HP", len(code) // 8, ctypes.addressof(self._code))
        self._header = ctypes.create_string_buffer(header)
        self._address = ctypes.addressof(self._header) if known else 0

    def install(self) -> None:
        """Filter the calls of the caller and all it will start; needs no_new_privs."""
        if self._address:
            libc.prctl(libc.PR_SET_SECCOMP, _MODE_FILTER, self._address)


def _program(column: int, architecture: int, *, privileged: bool) -> bytes:
    """Return the filter as the kernel reads it: operation, jumps if true and if false, operand."""
    refuse, absent = (_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        absent,
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 0, 1, _X32_BIT),
        absent,
    ]
    for calls, answer in ((_REFUSED, refuse), (_ABSENT, absent)):
        for numbers in calls.values():
            lines += [(_IF_EQUAL, 0, 1, numbers[column]), answer]
    if not privileged:
        lines += _without_owners(column)
    lines += [
        (_IF_EQUAL, 0, 4, _SOCKET[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_EQUAL, 0, 1, _AF_VSOCK),
        refuse,
        (_RETURN, 0, 0, _ALLOW),
        (_IF_EQUAL, 1, 0, _CLONE[column]),
        (_IF_EQUAL, 0, 3, _UNSHARE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_ANY_BIT, 0, 1, _NAMESPACES),
        refuse,
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _without_owners(column: int) -> list[tuple[int, int, int, int]]:
    """Let files be given to users other than root, who do not exist here, without any effect.

    The kernel would refuse it, and with it half of all packages, archives and Dockerfiles.
    """
    nothing, allow = (_RETURN, 0, 0, _ERRNO), (_RETURN, 0, 0, _ALLOW)
    lines: list[tuple[int, int, int, int]] = []
    for name, numbers in _CHOWN.items():
        if (number := numbers[column]) is None:
            continue
        checks = [
            line
            for argument in (_USER_ARGUMENT[name], _USER_ARGUMENT[name] + 1)
            for line in (
                (_LOAD, 0, 0, _FIRST_ARGUMENT + 8 * argument),
                (_IF_EQUAL, 2, 0, _ROOT),
                (_IF_EQUAL, 1, 0, _UNCHANGED),
                nothing,
            )
        ]
        lines += [(_IF_EQUAL, 0, len(checks) + 1, number), *checks, allow]
    return lines
