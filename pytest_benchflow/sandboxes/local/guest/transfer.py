"""Move files between a pipe and the sandbox's own file system, as tar streams.

This runs inside the sandbox's root, so whatever a link there points to is the sandbox's, never the host's.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator

from . import programs, wire

try:
    # tarfile imports these on use, when the interpreter's own files are out of sight.
    import bz2  # noqa: F401
    import lzma  # noqa: F401
    import zlib  # noqa: F401
except ImportError:  # an interpreter built without one of them cannot unpack that kind
    pass

_CHUNK = 1 << 18


def extract(message: wire.Message, fds: list[int]) -> int:
    """Unpack the tar stream on the first descriptor at `path`, owned as asked."""
    source, errors = fds
    try:
        owner = _owner(message["owner"])
        path: str = message["path"]
        exact = message["is_file"] and not os.path.isdir(path)
        path, name = os.path.split(os.path.realpath(path)) if exact else (path, None)
        _make_directories(path, *owner)
        with (
            open(source, "rb", closefd=False) as stream,
            tarfile.open(fileobj=stream, mode="r|*", bufsize=_CHUNK) as tar,
        ):
            _unpack(
                tar,
                path,
                name,
                None if message["keep_owners"] else owner,
                message["mode"],
                replaces=message["replaces"],
            )
    except BaseException as error:
        return _fail(error, errors)
    return wire.DONE


def _fail(error: BaseException, errors: int) -> int:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    os.write(errors, text.encode(errors="replace")[:4096])
    return wire.FAILED


def _owner(owner: str | None) -> tuple[int, int]:
    if owner is None:
        return 0, 0
    user = programs.resolve_user(f"0{owner}" if owner.startswith(":") else owner)
    # `COPY --chown=1000` without a group means the group of the same number.
    gid = user.gid if ":" in owner or not owner.isdigit() else int(owner)
    return user.uid, gid


def _unpack(
    tar: tarfile.TarFile, top: str, name: str | None, owner: tuple[int, int] | None, mode: int | None, *, replaces: bool
) -> None:
    """Unpack all members below `top`, under the given name instead of their own and with this owner if there is one."""
    top = top.rstrip("/")
    late: list[tuple[str, int]] = []
    for member in tar:
        # A name that would climb out is taken as one in `top`.
        path = top + os.path.normpath(f"/{name or member.name.lstrip('/')}")
        bits = member.mode & 0o7777 if mode is None else mode
        uid, gid = owner or (member.uid, member.gid)
        if member.isdir():
            if replaces and os.path.islink(path):
                os.unlink(path)
            _make_directory(path)
            late.append((path, bits))
        else:
            if replaces and os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            _make_directories(os.path.dirname(path), *(owner or (0, 0)))
            if not _make_entry(tar, member, path, top, bits):
                continue
        if (uid or gid) and _chown(path, uid, gid) and not member.issym():
            os.chmod(path, bits)
    for path, bits in reversed(late):
        os.chmod(path, bits)


def _make_directories(path: str, uid: int, gid: int) -> None:
    """Make a directory and what is missing above it, all with this owner."""
    if not os.path.isdir(path):
        _make_directories(os.path.dirname(path), uid, gid)
        os.mkdir(path, 0o755)
        if uid or gid:
            _chown(path, uid, gid)


def _chown(path: str, uid: int, gid: int) -> bool:
    """Change the owner, not of what a link leads to; False where only root exists."""
    try:
        os.chown(path, uid, gid, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def _make_directory(path: str) -> None:
    if not os.path.isdir(path):
        if os.path.lexists(path):
            os.unlink(path)
        os.makedirs(path, mode=0o755)


def _make_entry(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, top: str, bits: int) -> bool:
    """Make a file or link; an existing link is replaced, never written through."""
    if os.path.isdir(path) and not os.path.islink(path):
        raise IsADirectoryError(errno.EISDIR, "a directory is in the way", path)
    if os.path.lexists(path):
        os.unlink(path)
    if member.issym():
        os.symlink(member.linkname, path)
    elif member.islnk():
        os.link(os.path.normpath(f"{top}/{member.linkname}"), path, follow_symlinks=False)
    elif member.isfile():
        content = tar.extractfile(member)
        assert content is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            while chunk := content.read(1 << 20):
                file.write(chunk)
        os.chmod(path, bits)
        os.utime(path, (member.mtime, member.mtime))
    else:
        return False
    return True


def archive(message: wire.Message, fds: list[int]) -> int:
    """Pack the file or the content of the directory `source` into the first descriptor."""
    target, errors = fds
    source: str = message["source"]
    wants_directory: bool = message["directory"]
    try:
        status = os.stat(source)
        if stat.S_ISDIR(status.st_mode) != wants_directory or not (wants_directory or stat.S_ISREG(status.st_mode)):
            return wire.WRONG_KIND
        with open(target, "wb", closefd=False) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
            if wants_directory:
                for path, name in _walk(source):
                    _add(tar, path, name)
            else:
                _add(tar, os.path.realpath(source), os.path.basename(source))
    except BrokenPipeError:
        return wire.FAILED
    except BaseException as error:
        return wire.MISSING if _leads_nowhere(error) else _fail(error, errors)
    return wire.DONE


def _leads_nowhere(error: BaseException) -> bool:
    """Return whether nothing can be at a path, be it for links in a ring or for its length."""
    nowhere = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
    return isinstance(error, OSError) and error.errno in nowhere


def _walk(top: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    todo = [(top, prefix)]
    while todo:
        directory, prefix = todo.pop()
        try:
            with os.scandir(directory) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if not prefix or not _leads_nowhere(error):
                raise
            continue
        for entry in found:
            name = f"{prefix}{entry.name}"
            yield entry.path, name
            if entry.is_dir(follow_symlinks=False):
                todo.append((entry.path, f"{name}/"))


def _add(tar: tarfile.TarFile, path: str, name: str) -> None:
    """Add one entry; anything but files, directories and links is left out, as is what vanished or lies too deep."""
    try:
        status = os.lstat(path)
        info = tarfile.TarInfo(name)
        info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
        info.uid, info.gid = status.st_uid, status.st_gid
        if stat.S_ISREG(status.st_mode):
            _add_file(tar, path, info)
        elif stat.S_ISDIR(status.st_mode):
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        elif stat.S_ISLNK(status.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
            tar.addfile(info)
    except OSError as error:
        if not _leads_nowhere(error):
            raise


def _add_file(tar: tarfile.TarFile, path: str, info: tarfile.TarInfo) -> None:
    # O_NONBLOCK: the file may have become a fifo since it was looked at.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        info.size = os.fstat(file.fileno()).st_size
        tar.addfile(info, _Exactly(file, info.size))  # type: ignore[arg-type]


class _Exactly:
    """Read exactly as many bytes as the header promises, though the file may shrink or grow meanwhile."""

    def __init__(self, file: object, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, n: int) -> bytes:
        wanted = min(n, self._left)
        data: bytes = self._file.read(wanted)  # type: ignore[attr-defined]
        self._left -= wanted
        return data.ljust(wanted, b"\0")
