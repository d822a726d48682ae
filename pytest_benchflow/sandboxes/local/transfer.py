"""Move files into and out of a machine: tar streams through pipes, the host's side in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import BinaryIO

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.local.control import Control
from pytest_benchflow.sandboxes.local.guest import transfer as guest, wire
from pytest_benchflow.sandboxes.local.pipes import ProgramPipes


@dataclass(frozen=True, slots=True)
class Target:
    """Where files go in a sandbox, and whose they become."""

    path: str
    owner: str | None = None
    """None is root; with `keep_owners` everything keeps the one it had."""
    mode: int | None = None
    is_file: bool = False
    """The stream's only file becomes `path` itself, unless that is a directory."""
    keep_owners: bool = False


async def push(control: Control, pack: Callable[[BinaryIO], None], target: Target) -> None:
    """Unpack the tar stream that `pack` writes at `target`."""
    message: wire.Message = {"op": "extract", **asdict(target)}
    with ProgramPipes() as pipes:
        stream, errors = pipes.to_program(), pipes.from_program()
        number, status = await control.request(message, pipes.program_ends)

    def work() -> None:
        # The receiver says better than a broken pipe what went wrong.
        with contextlib.suppress(BrokenPipeError), open(stream, "wb") as file:
            pack(file)

    code, reason = await _transfer(control, number, status, errors, work)
    if code != guest.DONE:
        raise SandboxError(f"cannot write {target.path} in sandbox {control.name}: {reason}", retryable=False)


async def pull(control: Control, unpack: Callable[[BinaryIO], None], source: str, *, directory: bool) -> None:
    """Give `unpack` the tar stream of the file or of the directory's content."""
    message: wire.Message = {"op": "archive", "source": source, "directory": directory}
    with ProgramPipes() as pipes:
        stream, errors = pipes.from_program(), pipes.from_program()
        number, status = await control.request(message, pipes.program_ends)
    failure: list[Exception] = []

    def work() -> None:
        with open(stream, "rb") as file:
            try:
                unpack(file)
            except Exception as error:
                # The sender may know a better reason: an empty stream means a missing file, not a broken archive.
                failure.append(error)

    code, reason = await _transfer(control, number, status, errors, work)
    kind = "directory" if directory else "file"
    if code == guest.MISSING:
        raise FileNotFoundError(f"no {kind} {source} in sandbox {control.name}")
    if code == guest.WRONG_KIND:
        raise FileNotFoundError(f"{source} in sandbox {control.name} is not a {kind}")
    if failure and not reason:
        raise failure[0]
    if code != guest.DONE:
        raise SandboxError(f"cannot read {source} in sandbox {control.name}: {reason}", retryable=False)


async def _transfer(
    control: Control, number: int, status: asyncio.Future[int], errors: int, work: Callable[[], None]
) -> tuple[int, str]:
    """Do the host's part in a thread; return the exit status and the reason of the part inside."""
    thread = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(thread)
        code = await asyncio.shield(status)
        return code, os.read(errors, 4096).decode(errors="replace")
    except BaseException:
        # Once the other end is dead, the thread finds its pipe closed and ends too.
        with contextlib.suppress(SandboxError):
            await asyncio.shield(control.kill(number, status))
        await asyncio.wait([thread], timeout=5.0)
        raise
    finally:
        os.close(errors)
