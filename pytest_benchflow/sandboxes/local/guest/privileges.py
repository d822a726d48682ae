"""Drop what a program in the sandbox must not have."""

from __future__ import annotations

from . import landlock, libc, seccomp

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
        self._filter = seccomp.Filter(privileged=privileged)
        self._scope = landlock.Scope()

    def drop(self) -> None:
        """Give up everything else for good, for the caller and all that it will start."""
        for capability in self._dropped:
            libc.prctl(libc.PR_CAPBSET_DROP, capability)
        self._kept.assume()
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        self._scope.enter()
        self._filter.install()
        # A program inside that runs as the same user could otherwise trace init and reach its socket.
        libc.prctl(libc.PR_SET_DUMPABLE, 0)
