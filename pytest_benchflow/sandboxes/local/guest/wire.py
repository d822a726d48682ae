"""Messages between runner, zygote and init: one JSON object and some file descriptors per packet.

A packet larger than a socket buffer would be refused by the kernel, so big objects travel in a memfd.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys
import traceback
from typing import Any

INLINE_BYTES = 32 * 1024
_FDS_SPACE = socket.CMSG_SPACE(8 * array.array("i").itemsize)
_RIGHTS = (socket.SOL_SOCKET, socket.SCM_RIGHTS)

Message = dict[str, Any]

#: Exit status of a program that could not be started, as a shell reports it; the reason is on the error pipe.
NOT_STARTED = 127
#: Exit statuses of a transfer; with FAILED the reason is on the error pipe.
DONE, FAILED, MISSING, WRONG_KIND = 0, 1, 3, 4

#: Where programs of a sandbox find an HTTP proxy: a port that was never assigned to anything.
PROXY_PORT = 6
#: The address of a sandbox that has an interface, which user-mode networks have used for decades.
ADDRESS = "10.0.2.15"

#: What the zygote must know of a sandbox before it forks one.
PRIVILEGED = b"p"


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected packet sockets that no program inherits."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def encode(message: Message) -> bytes:
    """Return a short message as it travels."""
    return json.dumps(message).encode()


def send(sock: socket.socket, message: Message, fds: tuple[int, ...] = ()) -> None:
    """Send one message; the receiver gets its own copies of `fds`."""
    data = encode(message)
    if len(data) <= INLINE_BYTES:
        socket.send_fds(sock, [data], fds)
        return
    with open(os.memfd_create("bf-message", os.MFD_CLOEXEC), "wb+") as body:
        body.write(data)
        body.flush()
        socket.send_fds(sock, [b"@"], (*fds, body.fileno()))


def receive(sock: socket.socket) -> tuple[Message, list[int]] | None:
    """Return the next message and its descriptors, or None when the other end is gone."""
    try:
        # socket.recv_fds drops its flags in some releases, and descriptors would leak into programs.
        data, extra, _, _ = sock.recvmsg(INLINE_BYTES, _FDS_SPACE, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    if not data:
        return None
    fds = [fd for level, kind, raw in extra if (level, kind) == _RIGHTS for fd in array.array("i", raw)]
    if data == b"@":
        with open(fds.pop(), "rb") as body:
            body.seek(0)
            data = body.read()
    return json.loads(data), fds


def call(sock: socket.socket, flags: bytes, directory: str, groups: list[str], control: int) -> None:
    """Ask the zygote for a sandbox in these control groups that listens to `control`.

    What it writes goes to `directory`, or to memory if that is empty.
    """
    socket.send_fds(sock, [b"\0".join([flags, *map(os.fsencode, (directory, *groups))])], [control])


def receive_call(sock: socket.socket) -> tuple[bytes, bytes, list[bytes], int] | None:
    """Return flags, directory, groups and control socket of the next call, None when the other end is gone."""
    try:
        data, extra, _, _ = sock.recvmsg(INLINE_BYTES, _FDS_SPACE, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    if not data:
        return None
    flags, directory, *groups = data.split(b"\0")
    return flags, directory, groups, int.from_bytes(extra[0][2], sys.byteorder)


def send_failure(sock: socket.socket, error: BaseException) -> None:
    """Tell the runner why a sandbox cannot start; a bug of ours keeps its traceback."""
    if isinstance(error, OSError):
        text = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    else:
        text = "".join(traceback.format_exception(error))
    send(sock, {"event": "failed", "error": text, "errno": getattr(error, "errno", None)})
