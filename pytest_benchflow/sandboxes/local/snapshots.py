"""Snapshots: what a sandbox has written, as a layer of this run."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.cache import temporary_name
from pytest_benchflow.errors import SandboxError
from pytest_benchflow.removal import remove_tree
from pytest_benchflow.sandboxes.base import SandboxImage

if TYPE_CHECKING:
    from .builder import Built
    from .layers import LayerStore
    from .machine import Machine

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
        self._made: dict[str, Built] = {}

    async def take(self, machine: Machine, built: Built, name: str | None) -> SandboxImage:
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

    def find(self, image: SandboxImage, sandbox: str) -> Built:
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
