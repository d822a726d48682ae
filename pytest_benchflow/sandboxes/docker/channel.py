"""The runner's channel to PID 1 of a container: its lease, and a fast way to run commands.

A command through the engine costs it about 60 ms of work; PID 1 starts one in 2 ms. While the channel is in use, or
once a background process has kept its streams, commands go through the engine instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.docker.connection import Connection
from pytest_benchflow.sandboxes.docker.guest import script
from pytest_benchflow.sandboxes.docker.streams import STDERR, STDOUT, frames

Sink = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended."""

    status: str
    """Its exit status, or a word of the guest's scripts: `cwd` if the directory was missing."""
    note: str
    """`1` if another process still has its streams."""


class Answer:
    """Takes the pieces of both streams until each has told the end of the request."""

    def __init__(self, stdout: Sink, stderr: Sink, *, nonce: str | None = None) -> None:
        self.nonce = nonce or secrets.token_hex(12)
        self._searches = {STDOUT: _Search(self.nonce, stdout), STDERR: _Search(self.nonce, stderr)}
        self.ended: asyncio.Future[CommandEnd] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting any more when the connection is lost.
        self.ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def feed(self, stream: int, data: bytes) -> None:
        """Take the next piece of a stream; what follows the end is dropped."""
        search = self._searches[stream]
        await search.feed(data)
        if all(each.found is not None for each in self._searches.values()) and not self.ended.done():
            assert search.found is not None
            status, _, note = search.found.decode(errors="replace").partition(" ")
            self.ended.set_result(CommandEnd(status, note))

    async def flush(self) -> None:
        """Hand on what was held back because an end might have begun there."""
        for search in self._searches.values():
            await search.flush()


class _Search:
    def __init__(self, nonce: str, sink: Sink) -> None:
        self._mark = b"\0bf " + nonce.encode() + b" "
        self._sink = sink
        self._held = b""
        self.found: bytes | None = None

    async def feed(self, data: bytes) -> None:
        if self.found is not None:
            return
        data = self._held + data
        start = data.find(self._mark)
        if start < 0:
            start = self._possible_start(data)
        elif (end := data.find(b"\n", start)) >= 0:
            self.found = data[start + len(self._mark) : end]
        if start:
            await self._sink(data[:start])
        self._held = b"" if self.found is not None else data[start:]

    async def flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            await self._sink(held)

    def _possible_start(self, data: bytes) -> int:
        """Return where a mark may begin whose rest has not come yet."""
        start = data.find(b"\0", max(0, len(data) - len(self._mark) + 1))
        while start >= 0 and not self._mark.startswith(data[start:]):
            start = data.find(b"\0", start + 1)
        return len(data) if start < 0 else start


#: Variables that bash keeps to itself.
_READ_ONLY = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quote(text: str | bytes) -> str:
    """Return one word on one line of ASCII that bash takes for `text`; NUL bytes cannot be in it."""
    data = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    return "$'" + "".join(map(_ESCAPED.__getitem__, data)) + "'"


def can_export(name: str) -> bool:
    """Return whether bash can give a variable of this name to a program."""
    return _NAME.fullmatch(name) is not None and name not in _READ_ONLY


_ESCAPED = [chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\{byte:03o}" for byte in range(256)]


#: For so long PID 1 waits for its first line: nobody sends one if the runner was killed while its container started,
#: and an engine to which nobody is attached at that moment keeps the input open.
FIRST_LINE_SEC = 60
_BLOCK = 1 << 16
#: bash reads its input byte by byte: beyond this the engine is faster.
_MAX_LINE = 48 << 10
MAX_PUT_BYTES = 4 << 20
_READY_TIMEOUT_SEC = 60.0
_POKE_SEC = 1.0


def bootstrap(first_line_sec: float, lease_sec: int) -> tuple[str, ...]:
    """Return a PID 1 that ends, and its container with it, if the first line or a later one does not come in time.

    It needs no more than this to run the rest, which comes over the line and so is in nobody's process list.
    """
    read = f'IFS= read -r -t {math.ceil(first_line_sec)} bf_line && eval "eval $bf_line"'
    return ("bash", "-p", "-c", read, "bf-init", str(lease_sec))


class Channel:
    """Speaks with PID 1; the container ends when this is closed."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._token = secrets.token_hex(8)
        self._current: Answer | None = None
        self._retired = False
        self._tasks: list[asyncio.Task[None]] = []
        self._booted = 0.0
        self.can_put = False
        self.bash = "bash"

    async def open(self, lease_sec: int) -> None:
        """Bring PID 1 up, wait until it is ready, and give it signs of life from then on."""
        answer = Answer(_discard, _discard, nonce="ready")
        self._current = answer
        self._tasks.append(asyncio.create_task(self._pump()))
        boot = f"{quote(script('common', 'kill', 'init'))}\n{self._token}\n"
        try:
            async with asyncio.timeout(_READY_TIMEOUT_SEC):
                await self._connection.write(boot.encode())
                ready = await answer.ended
        except TimeoutError:
            raise SandboxError(f"sandbox {self._name}: PID 1 is not ready after {_READY_TIMEOUT_SEC:g} s") from None
        except BrokenPipeError:
            raise self._lost_error() from None
        uptime, _, can = ready.note.partition(" ")
        self.bash, self.can_put = ready.status, can == "put"
        self._booted = asyncio.get_running_loop().time() - float(uptime)
        if lease_sec:
            self._tasks.append(asyncio.create_task(self._renew(lease_sec / 3)))

    @property
    def idle(self) -> bool:
        """Whether a command can be run now."""
        return self._current is None and not self._retired

    @property
    def closed(self) -> bool:
        """Whether the line, and with it the container, has ended."""
        return self._tasks[0].done()

    async def ends(self, within_sec: float) -> bool:
        """Return whether it ends within some time."""
        done, _ = await asyncio.wait(self._tasks[:1], timeout=within_sec)
        return bool(done)

    def line_for(
        self, answer: Answer, command: str, cwd: str, env: Mapping[str, str], stdin: bytes | None
    ) -> str | None:
        """Return the request for a command; None if it cannot be made on this line."""
        given = "" if stdin is None else b"=" + stdin
        variables = [f"{name}={value}" for name, value in env.items()]
        words = ["bf_run", answer.nonce, *map(quote, (cwd, command, given, *variables))]
        line = " ".join(words)
        fits = len(line) <= _MAX_LINE and all(map(can_export, env)) and "\\000" not in line
        return line if fits else None

    async def run(self, answer: Answer, line: str) -> CommandEnd:
        """Send a request and wait for its end. If the wait is given up, the line stays busy until that comes."""
        return await self._request(answer, line)

    async def put(self, answer: Answer, directory: str, archive: bytes, file: str) -> CommandEnd:
        """Unpack a small archive in a directory, made if need be; `file` is its only one, if it has just one."""
        blocks = -(-len(archive) // _BLOCK)
        line = f"bf_put {answer.nonce} {quote(directory)} {blocks} {quote(file)}"
        return await self._request(answer, line, archive.ljust(blocks * _BLOCK, b"\0"))

    def ticks(self, moment: float) -> int:
        """Return a moment of the event loop's clock in the unit of processes' start times."""
        return int((moment - self._booted) * 100) - 1

    async def kill(self, answer: Answer, mark: str, began: float) -> CommandEnd:
        """Kill a command's processes even if another request is under way."""
        before, self._current = self._current, answer
        try:
            return await self._request(answer, f"bf_end {answer.nonce} {mark} {self.ticks(began)}")
        finally:
            self._current = before
            self._retired = True

    async def purge(self, answer: Answer, keep: Collection[str], uid: int) -> CommandEnd:
        """Kill every process but PID 1 and those named NUMBER:START; the status is how many are left."""
        if not all(re.fullmatch(r"\d+:\d+", each) for each in keep):
            raise ValueError("expected NUMBER:START")
        return await self._request(answer, " ".join(["bf_purge", answer.nonce, str(uid), *keep]))

    async def poke(self) -> None:
        """Have PID 1 collect dead orphans now."""
        with contextlib.suppress(BrokenPipeError):
            await self._connection.write(b"\n")

    async def keep(self) -> None:
        """Let the container live on without the runner."""
        with contextlib.suppress(BrokenPipeError):
            await self._connection.write(f"{self._token} bf_keep\n".encode())
        # Closed at once, the line would end before PID 1 has read this.
        await asyncio.sleep(0.1)

    def close(self) -> None:
        """End the lease; idempotent."""
        for task in self._tasks:
            task.cancel()
        self._connection.close()

    async def _request(self, answer: Answer, line: str, payload: bytes = b"") -> CommandEnd:
        if self.closed:
            raise self._lost_error()
        self._current = answer
        try:
            await self._connection.write(f"{self._token} {line}\n".encode() + payload)
            while not (await asyncio.wait([answer.ended], timeout=_POKE_SEC))[0]:
                # PID 1 looks after its workers only when a line comes.
                await self._connection.write(b"\n")
        except BrokenPipeError:
            raise self._lost_error() from None
        return answer.ended.result()

    async def _pump(self) -> None:
        async for stream, data in frames(self._connection.reader):
            if (answer := self._current) is None:
                continue
            await answer.feed(stream, data)
            if answer.ended.done() and self._current is answer:
                self._retired = self._retired or answer.ended.result().note == "1"
                self._current = None
        if self._current is not None and not self._current.ended.done():
            self._current.ended.set_exception(self._lost_error())

    async def _renew(self, every_sec: float) -> None:
        with contextlib.suppress(BrokenPipeError):
            while True:
                await asyncio.sleep(every_sec)
                await self._connection.write(b"\n")

    def _lost_error(self) -> SandboxError:
        return SandboxError(f"sandbox {self._name} is gone: its container ended or the Docker daemon did")


async def _discard(data: bytes) -> None:
    """Drop what PID 1 prints before it is ready."""
