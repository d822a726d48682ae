"""Perform the steps of a build inside a machine that keeps what they write."""

from __future__ import annotations

import contextlib
import io
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from pytest_benchflow.errors import BuildError, SandboxError
from pytest_benchflow.sandboxes import archive

from .context import BuildContext, ContextError, Source
from .environment import Host
from .image import Copy, Run
from .machine import Command, Machine
from .transfer import Target

_TAIL_LINES = 30


async def run_command(step: Run, machine: Machine, host: Host, where: str) -> None:
    """Run the command of a RUN; BuildError shows the end of what it printed."""
    image = step.image
    command = Command(
        step.argv,
        cwd=image.workdir or "/",
        user=image.user if host.privileged else None,
        env={**host.variables(network=True), **step.args, **image.env},
        merge=True,
    )
    result = await machine.run(command, stdin=(step.script or "").encode(errors="surrogateescape"))
    if result.return_code != 0:
        tail = result.stdout.rstrip().splitlines()[-_TAIL_LINES:]
        first = f"{where}: RUN {step.text}: exit status {result.return_code}"
        raise BuildError("\n    ".join([first, *tail]))


async def copy_files(step: Copy, machine: Machine, context: BuildContext, where: str) -> None:
    """Copy the files of a COPY or ADD as Docker would place them."""
    sources = sources_of(step, context, where)
    into_directory = step.target.endswith("/") or len(sources) + len(step.files) > 1
    path = step.target.rstrip("/") or "/"
    tree = Target(path, step.owner, step.mode)
    file = Target(path, step.owner, step.mode, is_file=not into_directory)
    with _told_with(step, where):
        for source in sources:
            if source.path.is_dir():
                await machine.push(_pack_directory(source, context), tree)
            elif step.unpack and tarfile.is_tarfile(source.path):
                await machine.push(_send_archive(source), tree)
            else:
                await machine.push(_pack_file(source), file)
        for name, content in step.files:
            await machine.push(_pack_content(name, content.encode(errors="surrogateescape")), file)


async def copy_between(step: Copy, source: Machine, target: Machine, where: str) -> None:
    """Copy what a COPY --from names out of the machine of another stage."""
    into_directory = step.target.endswith("/") or len(step.sources) > 1
    path = step.target.rstrip("/") or "/"
    for name in step.sources:
        with tempfile.TemporaryFile() as file:
            is_directory = await _take(source, name, file, where)
            file.seek(0)
            is_file = not (is_directory or into_directory)
            place = Target(path, step.owner, step.mode, is_file, keep_owners=step.owner is None)
            with _told_with(step, where):
                await target.push(lambda stream, file=file: shutil.copyfileobj(file, stream), place)  # type: ignore[misc]


@contextlib.contextmanager
def _told_with(step: Copy, where: str) -> Iterator[None]:
    """Name the line in what a failed copy says."""
    try:
        yield
    except SandboxError as error:
        raise BuildError(f"{where}: {step.text}: {error.message}") from None


async def _take(source: Machine, name: str, file: BinaryIO, where: str) -> bool:
    """Write the tar stream of a file or directory as it is; return whether it is a directory."""
    for directory in (False, True):
        try:
            await source.pull(lambda stream: shutil.copyfileobj(stream, file), name, directory=directory)
        except FileNotFoundError:
            file.seek(0)
            file.truncate()
        else:
            return directory
    raise BuildError(f"{where}: COPY {name}: not found in the stage it is copied from")


def sources_of(step: Copy, context: BuildContext, where: str) -> list[Source]:
    """Find what a COPY or ADD names."""
    try:
        return [found for word in step.sources for found in context.find(word)]
    except ContextError as error:
        raise BuildError(f"{where}: {step.text.split(maxsplit=1)[0]} {error}") from None


def _pack_directory(source: Source, context: BuildContext) -> Callable[[BinaryIO], None]:
    return lambda stream: archive.pack_dir(source.path, stream, keep=lambda name: context.keeps(source, name))


def _pack_file(source: Source) -> Callable[[BinaryIO], None]:
    return lambda stream: archive.pack_file(source.path, source.file_name, stream)


def _pack_content(name: str, content: bytes) -> Callable[[BinaryIO], None]:
    def pack(stream: BinaryIO) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(content), 0o644, int(time.time())
        with tarfile.open(fileobj=stream, mode="w|") as tar:
            tar.addfile(info, io.BytesIO(content))

    return pack


def _send_archive(source: Source) -> Callable[[BinaryIO], None]:
    """Send an archive as it is: it is unpacked, and if need be uncompressed, inside."""

    def send(stream: BinaryIO) -> None:
        with open(source.path, "rb") as file:
            shutil.copyfileobj(file, stream)

    return send
