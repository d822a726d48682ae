"""Keep programs from sockets of the host that have no file: who shares its network shares their names.

Needs Landlock of Linux 6.12 or later; older kernels go without.
"""

from __future__ import annotations

import ctypes
import os
import struct

from . import libc

#: The same numbers on every machine.
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_SCOPE_ABSTRACT_UNIX_SOCKET = 1


class Scope:
    """A domain of its own for the caller, made ready before any sandbox is forked."""

    def __init__(self) -> None:
        # No access to files or ports is handled, so none is restricted.
        self._attributes = ctypes.create_string_buffer(struct.pack("=QQQ", 0, 0, _SCOPE_ABSTRACT_UNIX_SOCKET), 24)

    def enter(self) -> bool:
        """Hide abstract sockets of others from the caller and all it will start; needs no_new_privs."""
        ruleset = libc.syscall(_CREATE_RULESET, ctypes.addressof(self._attributes), 24, 0)
        if ruleset < 0:
            return False
        try:
            return libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0
        finally:
            os.close(ruleset)
