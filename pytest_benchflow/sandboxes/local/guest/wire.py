"""Messages between runner, zygote and init: one JSON object and some file descriptors per packet.

A packet larger than a socket buffer would be refused by the kernel, so big objects travel in a memfd.
"""

from __future__ import annotations

import array
import json
import os
import socket
import traceback
from typing import Any

INLINE_BYTES = 32 * 1024
_FDS_SPACE = socket.CMSG_SPACE(8 * array.array("i").itemsize)
_RIGHTS = (socket.SOL_SOCKET, socket.SCM_RIGHTS)

Message = dict[str, Any]


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected packet sockets that no program inherits."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: Message, fds: tuple[int, ...] = ()) -> None:
    """Send one message; the receiver gets its own copies of `fds`."""
    data = json.dumps(message).encode()
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


def send_failure(sock: socket.socket, error: BaseException) -> None:
    """Tell the runner why a sandbox cannot start; a bug of ours keeps its traceback."""
    if isinstance(error, OSError):
        text = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    else:
        text = "".join(traceback.format_exception(error))
    send(sock, {"event": "failed", "error": text, "errno": getattr(error, "errno", None)})
