"""Give a program a terminal of the sandbox's own, whose other end the runner holds."""

from __future__ import annotations

import fcntl
import os
import socket
import termios


def take(channel: int, size: tuple[int, int], uid: int, gid: int) -> int:
    """Return a new terminal that controls the caller's session; the runner gets its other end through `channel`."""
    keyboard, screen = os.openpty()
    termios.tcsetwinsize(screen, size)
    # Opening it by name, as /dev/tty's users and `tty` do, needs the right to.
    os.fchown(screen, uid, gid)
    fcntl.ioctl(screen, termios.TIOCSCTTY, 0)
    with socket.socket(fileno=channel) as connection:
        socket.send_fds(connection, [b"t"], [keyboard])
    os.close(keyboard)
    return screen
