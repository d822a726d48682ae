"""Join this process's own terminal or pipes with a program in a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Process, Terminal

_CHUNK = 1 << 16
#: How long the last output of a program that has ended may take, where something else still holds its pipe.
_LINGER_SEC = 0.5
#: The status of a program that nobody reads any more.
_BROKEN_PIPE = 128 + signal.SIGPIPE
STDIN, STDOUT, STDERR = 0, 1, 2


def has_terminal() -> bool:
    """Return whether somebody sits at a terminal and looks at the output."""
    return os.isatty(STDIN) and os.isatty(STDOUT)


async def relay_terminal(start: Callable[[int, int], Awaitable[Terminal]]) -> int:
    """Start a program at a terminal of our own terminal's size, join the two, and return the program's status."""
    columns, rows = os.get_terminal_size(STDOUT)
    terminal = await start(rows, columns)
    with _raw(STDIN), _on_resize(terminal):
        return await _join(
            terminal.wait, terminal.kill, _feed(terminal.write, terminal.kill), [_Copy(terminal.read, STDOUT)]
        )


async def relay_pipes(process: Process) -> int:
    """Join a program with our standard input, output and error, and return its status."""
    copies = [_Copy(process.read, STDOUT), _Copy(process.read_stderr, STDERR)]
    return await _join(process.wait, process.kill, _feed(process.write, process.close_stdin), copies)


async def _join(
    wait: Callable[[], Awaitable[int]], kill: Callable[[], Awaitable[None]], feed: Awaitable[None], copies: list[_Copy]
) -> int:
    feeding = asyncio.ensure_future(feed)
    copying = [asyncio.ensure_future(copy.run()) for copy in copies]
    broken = asyncio.ensure_future(_first_failure(copying))
    ending = asyncio.ensure_future(wait())
    try:
        await asyncio.wait([ending, broken], return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            await kill()
            broken.result()
            return _BROKEN_PIPE
        status = ending.result()
        while any(not task.done() for task in copying):
            await asyncio.wait(copying, timeout=_LINGER_SEC)
            progress = [copy.take_progress() for copy in copies]
            if not any(progress):
                break
        return status
    finally:
        for task in (feeding, broken, ending, *copying):
            task.cancel()
        await asyncio.gather(feeding, broken, ending, *copying, return_exceptions=True)
        for copy in copies:
            copy.close()


async def _first_failure(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Return when nobody reads what one of the tasks writes, raise what else went wrong, wait if all end well."""
    try:
        await asyncio.gather(*tasks)
    except OSError:
        return
    await asyncio.get_running_loop().create_future()


async def _feed(write: Callable[[bytes], Awaitable[None]], end: Callable[[], Awaitable[None]]) -> None:
    """Hand on what comes from standard input until its end."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(BrokenPipeError):
        while True:
            # Files, and /dev/null, cannot be waited for: they are always ready.
            with contextlib.suppress(PermissionError):
                await _ready(STDIN, loop.add_reader, loop.remove_reader)
            try:
                data = os.read(STDIN, _CHUNK)
            except OSError:  # the terminal is gone
                data = b""
            if not data:
                break
            await write(data)
    await end()


class _Copy:
    """Copies one stream of a program to a descriptor of ours."""

    def __init__(self, read: Callable[[int], Awaitable[bytes]], target: int) -> None:
        self._read = read
        self._target = _without_blocking(target)
        self._progress = False
        self._is_writing = False

    async def run(self) -> None:
        """Copy to the end; OSError if nobody reads any more."""
        while data := await self._read(_CHUNK):
            self._is_writing = True
            await self._write(memoryview(data))
            self._is_writing, self._progress = False, True

    def take_progress(self) -> bool:
        """Return whether something is being written, or was since the last call."""
        progress, self._progress = self._progress, False
        return progress or self._is_writing

    def close(self) -> None:
        """Let go of our copy of the descriptor."""
        os.close(self._target)

    async def _write(self, data: memoryview) -> None:
        loop = asyncio.get_running_loop()
        while data:
            try:
                data = data[os.write(self._target, data) :]
            except BlockingIOError:
                await _ready(self._target, loop.add_writer, loop.remove_writer)


def _without_blocking(fd: int) -> int:
    """Return another descriptor of the same pipe or terminal; other programs that have it may want it to block."""
    with contextlib.suppress(OSError):
        if os.isatty(fd) or stat.S_ISFIFO(os.fstat(fd).st_mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return os.dup(fd)


async def _ready(fd: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
    """Wait until a descriptor can be read or written."""
    ready = asyncio.Event()
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)


@contextlib.contextmanager
def _raw(fd: int) -> Iterator[None]:
    """Hand every key on as it is, and be an ordinary terminal again afterwards."""
    before = termios.tcgetattr(fd)
    tty.setraw(fd, termios.TCSADRAIN)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _on_resize(terminal: Terminal) -> Iterator[None]:
    """Give the terminal in the sandbox every new size of ours."""
    loop = asyncio.get_running_loop()
    resizing: set[asyncio.Task[None]] = set()

    async def resize() -> None:
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(STDOUT)
            await terminal.resize(rows, columns)

    def heard() -> None:
        task = loop.create_task(resize())
        resizing.add(task)
        task.add_done_callback(resizing.discard)

    loop.add_signal_handler(signal.SIGWINCH, heard)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
