"""Copy what a sandbox has written to a layer that other sandboxes can stand on.

Runs on the host in a process of its own. The layer keeps what an overlay means: whiteouts and opaque directories.
"""

from __future__ import annotations

import contextlib
import os
import stat

from . import libc

_OVERLAYS_OWN = ("trusted.overlay.", "user.overlay.")
_OPAQUE = ".overlay.opaque"
_CHUNK = 1 << 24
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def main(source: int, target: str, *, privileged: bool) -> None:
    """Copy the directory behind a descriptor into an empty one."""
    if not privileged:
        # The caller owns every file there, but its modes may deny it.
        libc.become_root_of_a_user_namespace()
    os.umask(0)
    copy = _Copy(privileged)
    directory = os.open(target, _DIRECTORY)
    for name in os.listdir(source):
        if name != ".work":
            copy.entry(source, directory, name)
            # An area that nothing was written to would only make every mount longer.
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=directory)


class _Copy:
    def __init__(self, privileged: bool) -> None:
        self._privileged = privileged
        self._linked: dict[tuple[int, int], str] = {}
        """Where in the copy a file with several names is, as a path that lasts while its directory is open."""

    def entry(self, source: int, target: int, name: str) -> None:
        """Copy one entry of a directory to another directory."""
        status = os.stat(name, dir_fd=source, follow_symlinks=False)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR:
            os.mkdir(name, 0o700, dir_fd=target)
            self._directory(source, target, name)
        elif kind == stat.S_IFLNK:
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif kind == stat.S_IFREG:
            if self._is_linked(status, target, name):
                return
            _content(source, target, name)
        else:
            os.mknod(name, status.st_mode, status.st_rdev, dir_fd=target)
        self._attributes(source, target, name, status)

    def _directory(self, source: int, target: int, name: str) -> None:
        inner, copied = os.open(name, _DIRECTORY, dir_fd=source), os.open(name, _DIRECTORY, dir_fd=target)
        try:
            for entry in os.listdir(inner):
                self.entry(inner, copied, entry)
        finally:
            os.close(inner)
            os.close(copied)

    def _is_linked(self, status: os.stat_result, target: int, name: str) -> bool:
        """Give a file that has been copied already another name."""
        if status.st_nlink == 1:
            return False
        identity = (status.st_dev, status.st_ino)
        known = self._linked.get(identity)
        if known is None:
            self._linked[identity] = os.path.join(os.readlink(f"/proc/self/fd/{target}"), name)
            return False
        os.link(known, name, dst_dir_fd=target)
        return True

    def _attributes(self, source: int, target: int, name: str, status: os.stat_result) -> None:
        original, copied = f"/proc/self/fd/{source}/{name}", f"/proc/self/fd/{target}/{name}"
        if self._privileged:
            os.chown(copied, status.st_uid, status.st_gid, follow_symlinks=False)
        for key in os.listxattr(original, follow_symlinks=False):
            if key.endswith(_OPAQUE):
                os.setxattr(copied, key, os.getxattr(original, key))
            elif not key.startswith(_OVERLAYS_OWN):
                with contextlib.suppress(OSError):
                    os.setxattr(copied, key, os.getxattr(original, key, follow_symlinks=False), follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(copied, stat.S_IMODE(status.st_mode))
        os.utime(copied, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


def _content(source: int, target: int, name: str) -> None:
    """Copy a file's data, and only those: a hole stays one."""
    reader = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source)
    writer = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
    try:
        size, at = os.fstat(reader).st_size, 0
        os.ftruncate(writer, size)
        while at < size:
            try:
                at = os.lseek(reader, at, os.SEEK_DATA)
            except OSError:  # nothing but a hole from here on
                break
            end = os.lseek(reader, at, os.SEEK_HOLE)
            os.lseek(writer, at, os.SEEK_SET)
            while at < end and (sent := os.sendfile(writer, reader, at, min(end - at, _CHUNK))):
                at += sent
    finally:
        os.close(reader)
        os.close(writer)
