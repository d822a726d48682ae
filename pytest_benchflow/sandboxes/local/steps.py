"""Perform the steps of a build inside a machine that keeps what they write."""

from __future__ import annotations

import contextlib
import io
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pytest_benchflow.errors import BuildError, SandboxError
from pytest_benchflow.sandboxes import archive
from pytest_benchflow.sandboxes.patterns import is_pattern, matches

from .context import BuildContext, ContextError, Source
from .environment import Host
from .image import Copy, Run
from .machine import Command, Machine
from .transfer import Target

_TAIL_LINES = 30
_LIST = 'shopt -s nullglob dotglob; files=("$1"/*); ((${#files[@]})) && printf "%s\\0" "${files[@]}"'


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
    with _told_with(f"RUN {step.text}", where):
        result = await machine.run(command, stdin=(step.script or "").encode(errors="surrogateescape"))
    if result.return_code != 0:
        tail = result.stdout.rstrip().splitlines()[-_TAIL_LINES:]
        first = f"{where}: RUN {step.text}: exit status {result.return_code}"
        raise BuildError("\n    ".join([first, *tail]))


async def copy_files(step: Copy, machine: Machine, context: BuildContext, where: str) -> None:
    """Copy the files of a COPY or ADD as Docker would place them."""
    sources = sources_of(step, context, where)
    path = step.target.rstrip("/") or "/"
    tree = Target(path, step.owner, step.mode)
    file = Target(path, step.owner, step.mode, is_file=not step.target.endswith("/"))
    with _told_with(step.text, where):
        for source in sources:
            if source.path.is_dir():
                await machine.push(_pack_directory(source, context), tree)
            elif step.unpack and _is_archive(source.path):
                await machine.push(_send_archive(source), Target(path, step.owner, keep_owners=True))
            else:
                await machine.push(_pack_file(source), file)
        for name, content in step.files:
            await machine.push(_pack_content(name, content.encode(errors="surrogateescape")), file)


async def copy_between(step: Copy, source: Machine, target: Machine, where: str) -> None:
    """Copy what a COPY --from names out of the machine of another stage."""
    names = [name for word in step.sources for name in await _fitting(source, word)]
    if not names:
        raise BuildError(f"{where}: {step.text}: fits nothing in the stage it is copied from")
    into_directory = step.target.endswith("/")
    _check_target(step, len(names), where)
    path = step.target.rstrip("/") or "/"
    for name in names:
        with tempfile.TemporaryFile() as file:
            is_directory = await _take(source, name, file, where)
            file.seek(0)
            is_file = not (is_directory or into_directory)
            place = Target(path, step.owner, step.mode, is_file, keep_owners=step.owner is None)
            with _told_with(step.text, where):
                await target.push(lambda stream, file=file: shutil.copyfileobj(file, stream), place)  # type: ignore[misc]


@contextlib.contextmanager
def _told_with(step: str, where: str) -> Iterator[None]:
    """Name the line and the step in what a failure says."""
    try:
        with archive.told_as_build_error(f"{where}: {step}"):
            yield
    except SandboxError as error:
        raise BuildError(f"{where}: {step}: {error.message}", retryable=error.retryable) from None


async def _fitting(machine: Machine, pattern: str) -> list[str]:
    """List the paths of a machine that fit a pattern; one that is none fits itself."""
    found = [""]
    for part in PurePosixPath(pattern).parts[1:] if is_pattern(pattern) else ():
        found = [
            f"{parent}/{name}" for parent in found for name in await _names(machine, parent) if matches(name, part)
        ]
    return sorted(found) if is_pattern(pattern) else [pattern]


async def _names(machine: Machine, directory: str) -> list[str]:
    listed = await machine.run(Command(("bash", "-c", _LIST, "bash", directory)))
    return [path.rpartition("/")[2] for path in listed.stdout.split("\0")[:-1]]


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
    """Find what a COPY or ADD names; a pattern that fits nothing is no error as long as another source is there."""
    keyword = step.text.split(maxsplit=1)[0]
    try:
        found = [source for word in step.sources for source in context.find(word)]
    except ContextError as error:
        raise BuildError(f"{where}: {keyword} {error}") from None
    if not found and not step.files:
        raise BuildError(f"{where}: {keyword} {' '.join(step.sources)}: fits nothing in the build context")
    _check_target(step, len(found) + len(step.files), where)
    return found


def _check_target(step: Copy, count: int, where: str) -> None:
    if count > 1 and not step.target.endswith("/"):
        keyword = step.text.split(maxsplit=1)[0]
        raise BuildError(f"{where}: {keyword} of several files needs a directory; write {step.target}/ as its target")


def _is_archive(path: Path) -> bool:
    """Say whether a file is an archive with anything in it."""
    try:
        with tarfile.open(path) as tar:
            return tar.next() is not None
    except tarfile.TarError:
        return False


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
