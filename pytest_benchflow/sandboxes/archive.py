"""Tar streams to and from a sandbox: packing what the host sends, unpacking what it must not trust."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pytest_benchflow.core.errors import BuildError, SandboxError

_CHUNK = 1 << 18
#: Long names and extended headers are read into memory before anything can check them.
_MAX_HEADER_BYTES = 1 << 20
_HEADER_TYPES = {
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
}
#: A file has a long name, a long link and an extended header at most; each more makes `tarfile` recurse.
_MAX_HEADERS_IN_A_ROW = 8


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How much a sandbox may send."""

    total_bytes: int = 2 << 30
    members: int = 50_000


DEFAULT_LIMITS = ArchiveLimits()


def pack_file(source: Path, name: str, stream: BinaryIO) -> None:
    """Write one file, followed if it is a link, as the only member `name`."""
    if not stat.S_ISREG(source.stat().st_mode):
        raise FileNotFoundError(f"{source} is not a file")
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, str(source), name, follow=True)


def pack_dir(
    source: Path, stream: BinaryIO, *, keep: Callable[[str], bool] = lambda name: True, hard_links: bool = False
) -> None:
    """Write the content of a directory; links stay links; names that `keep` refuses are left out.

    With `hard_links`, a file of several names is sent once.
    """
    first: dict[tuple[int, int], str] | None = {} if hard_links else None
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path, name in walk(source):
            if keep(name):
                _add(tar, path, name, first=first)


@contextmanager
def as_build_error(where: str) -> Iterator[None]:
    """Say which file of a build context cannot be read, and in what place that matters."""
    try:
        yield
    except OSError as error:
        reason = f"cannot read {error.filename}: {error.strerror}" if error.filename else str(error)
        raise BuildError(f"{where}: {reason}") from None


def walk(top: Path) -> Iterator[tuple[str, str]]:
    """Yield every path below `top` and its relative name, parents first, in a stable order."""
    todo = [(str(top), "")]
    while todo:
        directory, prefix = todo.pop()
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            name = f"{prefix}{entry.name}"
            yield entry.path, name
        todo += [(e.path, f"{prefix}{e.name}/") for e in reversed(found) if e.is_dir(follow_symlinks=False)]


def _add(
    tar: tarfile.TarFile, path: str, name: str, *, follow: bool = False, first: dict[tuple[int, int], str] | None = None
) -> None:
    status = os.stat(path, follow_symlinks=follow)
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    same = first.setdefault((status.st_dev, status.st_ino), name) if first is not None else name
    if stat.S_ISREG(status.st_mode) and same != name:
        info.type, info.linkname = tarfile.LNKTYPE, same
        tar.addfile(info)
    elif stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            info.size = os.fstat(file.fileno()).st_size
            tar.addfile(info, file)
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
        tar.addfile(info)


def unpack_file(stream: BinaryIO, target: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> None:
    """Write the only member of a stream to exactly `target`, which must be a regular file."""
    with _open(stream) as tar:
        member = tar.next()
        if member is None or not member.isreg():
            raise SandboxError(f"{target.name} in the sandbox is not a regular file")
        _Budget(limits).take(member)
        if target.is_dir() and not target.is_symlink():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(tar, member, target)


def unpack_dir(stream: BinaryIO, target: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> None:
    """Unpack a stream below `target`; special files, links that leave it and paths too long for it are dropped.

    Links are made last, so nothing is ever written through one that came with the archive.
    """
    target.mkdir(parents=True, exist_ok=True)
    budget = _Budget(limits)
    links: list[tuple[PurePosixPath, str]] = []
    with _open(stream) as tar:
        for member in tar:
            budget.take(member)
            name = _inside(member.name)
            if not name.parts:  # the directory itself
                continue
            with _unless_too_long():
                if member.isdir():
                    _make_directory(target, name)
                elif member.isreg():
                    _make_directory(target, name.parent)
                    _write(tar, member, target / name)
                elif member.islnk():
                    _make_directory(target, name.parent)
                    _hard_link(target / _inside(member.linkname), target / name)
                elif member.issym() and stays_inside(name, member.linkname):
                    links.append((name, member.linkname))
    for name, link in links:
        with _unless_too_long():
            _make_directory(target, name.parent)
            _clear(target / name)
            (target / name).symlink_to(link)


@contextmanager
def _unless_too_long() -> Iterator[None]:
    """Leave out what a sandbox may hold but no path of the host can name."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise


def stays_inside(name: PurePosixPath, link: str) -> bool:
    """Return whether a link called `name` can only lead to places below the top directory.

    A ".." after a name is refused: if that name is itself a link, it would climb from somewhere else.
    """
    parts = PurePosixPath(link).parts
    climbs = next((i for i, part in enumerate(parts) if part != ".."), len(parts))
    return not link.startswith("/") and ".." not in parts[climbs:] and climbs <= len(name.parent.parts)


class _Budget:
    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._bytes = 0
        self._members = 0

    def take(self, member: tarfile.TarInfo) -> None:
        self._members += 1
        self._bytes += max(member.size, 0)
        if self._members > self._limits.members:
            raise SandboxError(f"the sandbox sent more than {self._limits.members} files", retryable=False)
        if self._bytes > self._limits.total_bytes:
            raise SandboxError(
                f"the sandbox sent more than {self._limits.total_bytes >> 20} MB, at {member.name!r}", retryable=False
            )


class _BoundedInfo(tarfile.TarInfo):
    """A header that is checked before `tarfile` reads what it announces; one subclass serves one archive."""

    headers_in_a_row = 0

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _BoundedInfo:
        info = super().frombuf(buf, encoding, errors)
        if info.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse_error()
        cls.headers_in_a_row = cls.headers_in_a_row + 1 if info.type in _HEADER_TYPES else 0
        if info.type in _HEADER_TYPES and info.size > _MAX_HEADER_BYTES:
            raise SandboxError(f"the sandbox sent an archive with a header of {info.size} bytes", retryable=False)
        if cls.headers_in_a_row > _MAX_HEADERS_IN_A_ROW:
            raise SandboxError("the sandbox sent an archive of nothing but headers", retryable=False)
        return info

    # How `tarfile` reads the maps of sparse files, which may be endless and which no sandbox has a reason to send.

    def _proc_gnusparse_00(self, *_: object) -> None:
        raise _sparse_error()

    _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse_00


def _sparse_error() -> SandboxError:
    return SandboxError("the sandbox sent an archive with a sparse file", retryable=False)


@contextmanager
def _open(stream: BinaryIO) -> Iterator[tarfile.TarFile]:
    """Open an untrusted stream; whatever is wrong with it is the sandbox's failure."""
    try:
        info = type("_Info", (_BoundedInfo,), {})
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=info, bufsize=_CHUNK) as tar:
            yield tar
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise SandboxError(f"the sandbox sent a broken archive: {error}") from None


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise SandboxError(f"the sandbox sent an archive with the path {name!r}, which leaves its directory")
    return path


def _make_directory(top: Path, name: PurePosixPath) -> None:
    """Make `name` and its parents below `top` as real directories, replacing what is none."""
    path = top
    for part in name.parts:
        path /= part
        if path.is_symlink() or not path.is_dir():
            _clear(path)
            path.mkdir()


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(member)
    assert content is not None
    _clear(path)
    mode = (member.mode & 0o777) | stat.S_IRUSR | stat.S_IWUSR
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o600), "wb") as file:
        shutil.copyfileobj(content, file, _CHUNK)
        os.fchmod(file.fileno(), mode)


def _hard_link(source: Path, path: Path) -> None:
    if not source.is_symlink() and source.is_file() and source != path:
        _clear(path)
        os.link(source, path, follow_symlinks=False)


def _clear(path: Path) -> None:
    """Remove what stands where something else is to be written."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
