"""Move files into and out of a container as tar streams; nothing is mounted, so the daemon may be anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import threading
from collections.abc import Callable, Generator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from pytest_benchflow.core.capture import Capture
from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import archive
from pytest_benchflow.sandboxes.docker.channel import MAX_PUT_BYTES, Answer, CommandEnd
from pytest_benchflow.sandboxes.docker.client import EngineError
from pytest_benchflow.sandboxes.docker.exec import Command, ShellContainer
from pytest_benchflow.sandboxes.docker.streams import Pipe, Reader
from pytest_benchflow.sandboxes.helpers import OWN_ENV

if TYPE_CHECKING:
    import docker
    from typing_extensions import Buffer


_CHUNK = 1 << 18
#: Exit statuses of the scripts below.
_MISSING, _WRONG_KIND, _NO_TAR = 3, 4, 5
_DIRECTORY = """
[ -d {path} ] || {{ [ -e {path} ] && exit 4; exit 3; }}
command -v tar >/dev/null || exit 5
exec tar -cf - -C {path} .
"""
_FILE = """
[ -f {path} ] || {{ [ -e {path} ] && exit 4; exit 3; }}
command -v tar >/dev/null || exit 5
exec tar -chf - -C {parent} -- {name}
"""


async def upload_file(container: ShellContainer, source: Path, target: str) -> None:
    """Copy a host file to exactly `target`, keeping its mode."""
    path = PurePosixPath(target)
    name = path.name
    await push(container, lambda stream: archive.pack_file(source, name, stream), str(path.parent), name)


async def upload_dir(container: ShellContainer, source: Path, target: str) -> None:
    """Copy the content of a host directory into `target`."""
    await push(container, lambda stream: archive.pack_dir(source, stream), target)


async def download_file(container: ShellContainer, source: str, target: Path) -> None:
    """Copy a file out."""
    await pull(container, lambda stream: archive.unpack_file(stream, target), source, directory=False)


async def download_dir(container: ShellContainer, source: str, target: Path) -> None:
    """Copy the content of a directory out, safely."""
    await pull(container, lambda stream: archive.unpack_dir(stream, target), source, directory=True)


async def push(container: ShellContainer, pack: Callable[[BinaryIO], None], directory: str, file: str = "") -> None:
    """Unpack what `pack` writes, as a tar stream, in a directory, made if need be; `file` is its only one, if any."""
    channel = container.channel
    can_put = channel is not None and channel.can_put
    small = await container.engine.thread(lambda: _pack_small(pack)) if can_put else None
    if channel is not None and small is not None and channel.idle:
        output = Capture()
        ended = await channel.put(Answer(output.feed, output.feed), directory, small, file)
        if ended.status != "0":
            raise _transfer_error("write", directory, container, output.text())
        return
    path = container.quote(directory)
    text = f"mkdir -p -- {path} || exit; stat -f -c %T -- {path} 2>/dev/null || :"
    if file:
        target = container.quote(f"{directory}/{file}")
        text = f"[ -d {target} ] && [ ! -L {target} ] && {{ echo {target} is a directory >&2; exit 1; }}; {text}"
    made = await container.run(Command(text, user="0", env=OWN_ENV))
    if made.return_code:
        raise _transfer_error("write", directory, container, made.stderr)
    if made.stdout.strip() == "tmpfs":
        # The engine writes to the disk of the container, where nobody looks below a mount.
        await _push_by_tar(container, pack, directory)
        return
    try:
        await container.engine.call(
            lambda client: client.put_archive(container.id, directory, cast(bytes, stream_archive(pack)))
        )
    except EngineError as error:
        if not can_put or "invalid symlink" not in error.reason:
            raise _transfer_error("write", directory, container, error.reason) from None
        # The engine makes no link that leads out of the directory, where nothing but the sandbox could be harmed.
        await _push_by_tar(container, pack, directory)


async def _push_by_tar(container: ShellContainer, pack: Callable[[BinaryIO], None], directory: str) -> None:
    """Have the container's own tar unpack the stream."""
    process = await container.open(["tar", "-xpf", "-", "-C", directory], user="0", cwd="/", env=OWN_ENV)
    chunks = stream_archive(pack)
    try:
        with contextlib.suppress(BrokenPipeError):
            while chunk := await container.engine.thread(lambda: next(chunks, b"")):
                await process.write(chunk)
        await process.close_stdin()
        if await process.wait():
            raise _transfer_error("write", directory, container, (await process.read_stderr()).decode(errors="replace"))
    except asyncio.CancelledError:
        await asyncio.shield(process.kill())
        raise
    finally:
        chunks.close()


async def pull(container: ShellContainer, unpack: Callable[[BinaryIO], None], source: str, *, directory: bool) -> None:
    """Give `unpack`, in a thread, the tar stream of a file or of a directory's content."""
    if await _pull_fast(container, unpack, source, directory=directory):
        return
    try:
        right = await container.engine.call(
            lambda client: _pull_archive(client, container.id, unpack, source, directory)
        )
    except EngineError as error:
        if error.status != 404 and "not a directory" not in error.reason:
            raise _transfer_error("read", source, container, error.reason) from None
        if await container.has_ended():
            raise container.gone_error() from None
        raise _not_found_error(source, container, directory, wrong=error.status != 404) from None
    if not right:
        raise _not_found_error(source, container, directory, wrong=True)


async def _pull_fast(
    container: ShellContainer, unpack: Callable[[BinaryIO], None], source: str, *, directory: bool
) -> bool:
    """Let the container's own tar pack the files, which knows mounts too; False if it has none, or cannot run it."""
    if container.channel is not None and not container.channel.idle:
        return False
    path = PurePosixPath(source)
    words = {"path": source, "parent": str(path.parent), "name": path.name}
    words = {name: container.quote(word) for name, word in words.items()}
    command = Command((_DIRECTORY if directory else _FILE).format(**words), user="0", env=OWN_ENV)
    pipe, output = Pipe(), Capture()
    unpacking = asyncio.ensure_future(container.engine.thread(lambda: pipe.drain_into(unpack)))
    sending = asyncio.ensure_future(container.run_into(command, pipe.feed, output.feed))
    sending.add_done_callback(lambda _: pipe.close())
    try:
        await asyncio.wait([sending, unpacking], return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            unpacking.result()
        status = await _status(container, sending)
        if status == _NO_TAR:
            return False
        if status in (_MISSING, _WRONG_KIND):
            raise _not_found_error(source, container, directory, wrong=status == _WRONG_KIND)
        # tar ends with 1 if a file changed while it was read, which a living sandbox may well do.
        if status > 1:
            raise _transfer_error("read", source, container, output.text())
        await unpacking
    finally:
        sending.cancel()
        await asyncio.wait([sending, unpacking])
        # Without a stream it has failed, for a reason that is told better above.
        unpacking.exception()
    return True


async def _status(container: ShellContainer, sending: asyncio.Future[CommandEnd]) -> int:
    """Return how a script ended; a container that is not ours may well have stopped, or have no shell."""
    try:
        return int((await sending).status)
    except SandboxError:
        if container.channel is not None:
            raise
        return _NO_TAR


def _pull_archive(
    client: docker.APIClient, container_id: str, unpack: Callable[[BinaryIO], None], source: str, directory: bool
) -> bool:
    """Let the engine pack the files; False if the source is of another kind."""
    path = f"{source.rstrip('/')}/." if directory else source
    stream, facts = client.get_archive(container_id, path, chunk_size=_CHUNK)
    if not directory and facts.get("linkTarget"):
        stream, facts = client.get_archive(container_id, facts["linkTarget"], chunk_size=_CHUNK)
    # The engine's modes are those of Go, where the top bit is a directory.
    if bool(facts["mode"] & 1 << 31) != directory:
        return False
    unpack(cast(BinaryIO, Reader(stream)))
    return True


def _pack_small(pack: Callable[[BinaryIO], None]) -> bytes | None:
    """Return a small archive, None if it is a big one."""
    stream = _Small()
    try:
        pack(stream)
    except _TooBig:
        return None
    return stream.getvalue()


def stream_archive(pack: Callable[[BinaryIO], None]) -> Generator[bytes]:
    """Yield an archive while another thread packs it."""
    read, write = os.pipe()
    failure: list[BaseException] = []

    def work() -> None:
        try:
            with open(write, "wb") as stream:
                pack(stream)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work, name="benchflow-pack", daemon=True)
    thread.start()
    with open(read, "rb") as stream:
        yield from iter(lambda: stream.read(_CHUNK), b"")
    thread.join()
    if failure:
        raise failure[0]


class _TooBig(Exception):
    pass


class _Small(io.BytesIO):
    def write(self, data: Buffer, /) -> int:
        if self.tell() > MAX_PUT_BYTES:
            raise _TooBig
        return super().write(data)


def _transfer_error(verb: str, path: str, container: ShellContainer, reason: str) -> SandboxError:
    text = reason.strip().partition("\n")[0]
    # How tar says it of a file that fits in part.
    text = "No space left on device" if ": Wrote only " in text else text
    return SandboxError(f"cannot {verb} {path} in {container.title}: {text}", retryable=False)


def _not_found_error(source: str, container: ShellContainer, directory: bool, *, wrong: bool) -> FileNotFoundError:
    kind = "directory" if directory else "file"
    if wrong:
        return FileNotFoundError(f"{source} in {container.title} is not a {kind}")
    return FileNotFoundError(f"no {kind} {source} in {container.title}")
