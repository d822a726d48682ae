"""Perform the steps of a build inside a machine that keeps what they write."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from typing import BinaryIO

from pytest_benchflow.errors import BuildError
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
    result = await machine.run(command)
    if result.return_code != 0:
        tail = result.stdout.rstrip().splitlines()[-_TAIL_LINES:]
        first = f"{where}: RUN {step.text}: exit status {result.return_code}"
        raise BuildError("\n    ".join([first, *tail]))


async def copy_files(step: Copy, machine: Machine, context: BuildContext, where: str) -> None:
    """Copy the files of a COPY or ADD as Docker would place them."""
    sources = sources_of(step, context, where)
    into_directory = step.target.endswith("/") or len(sources) > 1
    path = step.target.rstrip("/") or "/"
    for source in sources:
        if source.path.is_dir():
            target = Target(path, step.owner, step.mode)
            await machine.push(_pack_directory(source, context), target)
        elif step.unpack and tarfile.is_tarfile(source.path):
            await machine.push(_send_archive(source), Target(path, step.owner, step.mode))
        else:
            target = Target(path, step.owner, step.mode, is_file=not into_directory)
            await machine.push(_pack_file(source), target)


def sources_of(step: Copy, context: BuildContext, where: str) -> list[Source]:
    """Find what a COPY or ADD names."""
    try:
        return [found for word in step.sources for found in context.find(word)]
    except ContextError as error:
        raise BuildError(f"{where}: {step.text.split(maxsplit=1)[0]} {error}") from None


def _pack_directory(source: Source, context: BuildContext) -> Callable[[BinaryIO], None]:
    return lambda stream: archive.pack_dir(source.path, stream, keep=lambda name: context.keeps(source, name))


def _pack_file(source: Source) -> Callable[[BinaryIO], None]:
    return lambda stream: archive.pack_file(source.path, source.path.name, stream)


def _send_archive(source: Source) -> Callable[[BinaryIO], None]:
    """Send an archive as it is: it is unpacked, and if need be uncompressed, inside."""

    def send(stream: BinaryIO) -> None:
        with open(source.path, "rb") as file:
            shutil.copyfileobj(file, stream)

    return send
