"""The cache of layers: directories named by what made them, each complete from the moment it exists.

Snapshots are layers of one run. In a user namespace the host's root has no number, and what belongs to him cannot be
changed even by the root inside; a layer that repeats the host's directories as the caller's own cures that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.core.files import cache_directory, is_abandoned, locked_files, temporary_name
from pytest_benchflow.core.removal import remove_tree
from pytest_benchflow.sandboxes.base import SandboxImage
from pytest_benchflow.sandboxes.local.host import LayerDirectory, choose_layer_directory

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.local.builder import BuiltEnvironment
    from pytest_benchflow.sandboxes.local.machine import Machine


_NAME_LENGTH = 24
_KEPT_SEC = 30 * 24 * 3600.0


def layer_name(key: str) -> str:
    """Return the directory of the layer with this key; short, since mount options hold many of them."""
    return key[:_NAME_LENGTH]


class LayerStore:
    """Layers on disk, shared by all processes of one user."""

    def __init__(self, *, privileged: bool) -> None:
        self._privileged = privileged
        self._swept = False

    @cached_property
    def place(self) -> LayerDirectory:
        """The directory that holds the layers, made on first use and closed to others."""
        return choose_layer_directory(cache_directory() / "layers", privileged=self._privileged)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.place.path

    def has(self, name: str) -> bool:
        """Return whether a layer is there; asking counts as use."""
        try:
            # With the slash this fails for what is not a directory.
            os.utime(f"{self.path / name}/")
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    @contextlib.asynccontextmanager
    async def locked(self, name: str) -> AsyncIterator[None]:
        """Be the only builder of a layer on this host; the wait ends with the caller's own deadline."""
        async with locked_files(self.path / f"{name}.lock"):
            yield

    async def reserve(self) -> str:
        """Name a new directory of this process, once what others have left is gone."""
        if not self._swept:
            self._swept = True
            await asyncio.to_thread(self._sweep)
        return temporary_name()

    @contextlib.asynccontextmanager
    async def building(self, name: str) -> AsyncIterator[str]:
        """Give a new directory to build in; it becomes the layer on success and vanishes otherwise."""
        temporary = await self.reserve()
        path = self.path / temporary
        path.mkdir(mode=0o700)
        try:
            yield temporary
            await asyncio.to_thread(self._commit, path, name)
        finally:
            await asyncio.shield(asyncio.to_thread(remove_tree, path))

    def _commit(self, path: Path, name: str) -> None:
        remove_tree(path / ".work")
        for area in path.iterdir():
            # An area the step did not touch would only make every mount longer.
            with contextlib.suppress(OSError):
                area.rmdir()
        target = self.path / name
        if os.path.lexists(target):
            # Sandboxes may still stand on the old one: it goes when this process is gone.
            target.rename(self.path / f"{path.name}-replaced")
        path.rename(target)

    def _sweep(self) -> None:
        """Remove what builders that are gone have left, and layers that nobody has used for long."""
        for path in self.path.iterdir():
            # Another process may be sweeping too.
            with contextlib.suppress(FileNotFoundError):
                if path.is_dir() and _is_useless(path):
                    # Renamed first: whoever looks for it meanwhile finds it whole or not at all.
                    doomed = path.rename(self.path / temporary_name())
                    remove_tree(doomed)


def _is_useless(path: Path) -> bool:
    if path.name.startswith("tmp-"):
        return is_abandoned(path.name)
    return path.stat().st_mtime < time.time() - _KEPT_SEC


#: Deeper directories are rarely written to, and each one costs a block on disk.
_DEPTH = 9
_WHOLE = ("/etc", "/usr/local", "/var/lib/dpkg")
#: Files that are edited or locked in place rather than replaced.
_COPIED = ("/etc/", "/var/lib/dpkg/")
_NOT_COPIED = "/var/lib/dpkg/info/"
_MAX_FILE_BYTES = 4 << 20


async def ensure_mirror(store: LayerStore, name: str) -> None:
    """Build the layer `name` with the caller's own copy of the host's directories, unless it is there."""
    if store.has(name):
        return
    async with store.locked(name):
        if not store.has(name):
            async with store.building(name) as directory:
                await asyncio.to_thread(_mirror, store.path / directory)


def _mirror(target: Path) -> None:
    from pytest_benchflow.sandboxes.local.guest import hostview

    for area in hostview.detect().seen_by(privileged=False):
        _copy(f"/{area.path}", str(target / area.key), depth=_DEPTH)


def _copy(source: str, target: str, depth: int) -> None:
    os.mkdir(target)
    with os.scandir(source) as entries:
        for entry in entries:
            # Gone meanwhile, or closed by something else than its mode: the sandbox does without.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                _copy_entry(entry, f"{target}/{entry.name}", depth)
    os.chmod(target, stat.S_IMODE(os.stat(source).st_mode) | 0o700)


def _copy_entry(entry: os.DirEntry[str], target: str, depth: int) -> None:
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        whole = any(entry.path == top or entry.path.startswith(f"{top}/") for top in _WHOLE)
        if status.st_mode & 0o005 == 0o005 and (depth > 1 or whole):
            _copy(entry.path, target, depth - 1)
    elif _is_edited(entry.path, status):
        shutil.copy(entry.path, target)


def _is_edited(path: str, status: os.stat_result) -> bool:
    readable = stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o004)
    wanted = path.startswith(_COPIED) and not path.startswith(_NOT_COPIED)
    return readable and wanted and status.st_size <= _MAX_FILE_BYTES


PROVIDER = "local"
_HERE = Path(__file__).parent
_CODE = (
    "import sys; sys.path.append(sys.argv[1]); from guest import copy; "
    "copy.main(int(sys.argv[2]), sys.argv[3], privileged=sys.argv[4] == 'yes')"
)
_COPY_TIMEOUT_SEC = 600.0


class Snapshots:
    """The snapshots of one backend; a process that is killed leaves them as half-built layers, which are swept."""

    def __init__(self, store: LayerStore) -> None:
        self._store = store
        self._made: dict[str, BuiltEnvironment] = {}

    async def take(self, machine: Machine, built: BuiltEnvironment, name: str | None) -> SandboxImage:
        """Make a layer of what a machine has written since it was started from `built`."""
        layer = temporary_name()
        path = self._store.path / layer
        path.mkdir(mode=0o700)
        try:
            await machine.snapshot(path, privileged=built.base.privileged)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(remove_tree, path))
            raise
        base = replace(built.base, layers_dir=str(self._store.path), layers=(layer, *built.base.layers))
        self._made[layer] = replace(built, base=base)
        return SandboxImage(PROVIDER, layer, {"name": name} if name else {})

    def find(self, image: SandboxImage, sandbox: str) -> BuiltEnvironment:
        """Return what a sandbox that restores a snapshot is started from."""
        if image.provider != PROVIDER:
            raise SandboxError(f"sandbox {sandbox} is local and cannot restore an image of {image.provider}")
        if image.ref not in self._made:
            raise SandboxError(f"image {image.ref} is gone: a local snapshot lasts as long as the run that made it")
        return self._made[image.ref]

    async def aclose(self) -> None:
        """Remove them all."""
        for layer in self._made:
            await asyncio.to_thread(remove_tree, self._store.path / layer)
        self._made.clear()


async def copy_written(written: int, target: Path, *, privileged: bool) -> None:
    """Copy the directory behind a descriptor of a sandbox's, in a process that may read all of it."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _CODE, str(_HERE), str(written), str(target)),
        "yes" if privileged else "no",
        pass_fds=[written],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_COPY_TIMEOUT_SEC):
            _, errors = await program.communicate()
    except TimeoutError:
        raise SandboxError(f"the snapshot took longer than {_COPY_TIMEOUT_SEC:g} s") from None
    finally:
        if program.returncode is None:
            program.kill()
            await asyncio.shield(program.wait())
    if program.returncode:
        reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise SandboxError(f"the snapshot could not be written: {reason}")
