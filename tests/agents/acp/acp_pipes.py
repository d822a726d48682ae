"""Byte pipes for the tests: a real program on this machine, and a recorded one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_benchflow.core.types import Json

HERE = Path(__file__).parent


class Program:
    """A program in a process group of its own; implements `Process`."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._child = child
        self._stdin, self._stdout, self._stderr = child.stdin, child.stdout, child.stderr
        self.killed = False

    @classmethod
    async def start(cls, argv: Sequence[str]) -> Program:
        child = await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        return cls(child)

    @property
    def pid(self) -> int:
        return self._child.pid

    async def write(self, data: bytes) -> None:
        self._stdin.write(data)
        await self._stdin.drain()

    async def close_stdin(self) -> None:
        self._stdin.close()

    async def read(self, n: int = 65536) -> bytes:
        return await self._stdout.read(n)

    async def read_stderr(self, n: int = 65536) -> bytes:
        return await self._stderr.read(n)

    async def wait(self) -> int:
        code = await self._child.wait()
        return code if code >= 0 else 128 - code

    async def kill(self) -> None:
        self.killed = True
        self._stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        await self._child.wait()


class Recording:
    """An agent that says what a recorded one said, at each point where that one had got the same request."""

    def __init__(self, entries: list[dict[str, Json]]) -> None:
        self._entries = entries
        self._at = 0
        self._ids: dict[Json, Json] = {}
        self._output: asyncio.Queue[bytes] = asyncio.Queue()
        self._gone = asyncio.Event()
        self.killed = False
        self._play()

    @classmethod
    def load(cls, name: str) -> Recording:
        text = (HERE / "traces" / f"{name}.jsonl").read_text("utf-8")
        return cls([json.loads(line) for line in text.splitlines()])

    def sent(self, method: str) -> list[dict[str, Json]]:
        """Return the parameters of each such request that the recorded client sent."""
        out = [entry["out"] for entry in self._entries if "out" in entry]
        return [message["params"] for message in out if message.get("method") == method]

    def _play(self) -> None:
        while self._at < len(self._entries) and "in" in self._entries[self._at]:
            message = dict(self._entries[self._at]["in"])
            if "method" not in message:
                message["id"] = self._ids[message["id"]]
            self._output.put_nowait(json.dumps(message).encode() + b"\n")
            self._at += 1

    async def write(self, data: bytes) -> None:
        got = json.loads(data)
        if got.get("method") == "session/cancel" and self._at == len(self._entries):
            return
        assert self._at < len(self._entries), f"nothing recorded for {got}"
        expected = self._entries[self._at]["out"]
        assert isinstance(expected, dict)
        assert got.get("method") == expected.get("method"), f"recorded {expected}, got {got}"
        if "method" in got:
            self._ids[expected.get("id")] = got.get("id")
        else:
            assert got["id"] == expected["id"]
        self._at += 1
        self._play()

    async def close_stdin(self) -> None:
        self._gone.set()

    async def read(self, n: int = 65536) -> bytes:
        if self._gone.is_set() and self._output.empty():
            return b""
        return await self._output.get()

    async def read_stderr(self, n: int = 65536) -> bytes:
        await self._gone.wait()
        return b""

    async def wait(self) -> int:
        await self._gone.wait()
        return 0

    async def kill(self) -> None:
        self.killed = True
        self._gone.set()
        self._output.put_nowait(b"")


def python(script: Path, *args: str) -> list[str]:
    """Return the command that runs a script with nothing but the standard library, fast."""
    return [sys.executable, "-I", "-S", str(script), *args]


class Refuse(Exception):
    """Makes a scripted agent answer a request with an error."""


Handler = Callable[[dict[str, Json]], Json]


class Scripted:
    """An agent in this process that answers each method by a function; notifications may come with the answer."""

    def __init__(self, **handlers: Handler | Json) -> None:
        self._handlers = handlers
        self._output: asyncio.Queue[bytes] = asyncio.Queue()
        self._gone = asyncio.Event()
        self.sent: list[tuple[str, dict[str, Json]]] = []
        self.killed = False

    def notify(self, update: dict[str, Json]) -> None:
        params = {"sessionId": "s", "update": update}
        self._put({"method": "session/update", "params": params})

    def _put(self, message: dict[str, Json]) -> None:
        self._output.put_nowait(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def write(self, data: bytes) -> None:
        request = json.loads(data)
        method, params = request["method"], request.get("params")
        self.sent.append((method, params))
        if "id" not in request:
            return
        handler = self._handlers.get(method.replace("/", "_"), {})
        try:
            self._put({"id": request["id"], "result": handler(params) if callable(handler) else handler})
        except Refuse as error:
            self._put({"id": request["id"], "error": {"code": -32602, "message": str(error)}})

    async def close_stdin(self) -> None:
        self._gone.set()

    async def read(self, n: int = 65536) -> bytes:
        return await self._output.get()

    async def read_stderr(self, n: int = 65536) -> bytes:
        await self._gone.wait()
        return b""

    async def wait(self) -> int:
        await self._gone.wait()
        return 0

    async def kill(self) -> None:
        self.killed = True
        self._gone.set()
        self._output.put_nowait(b"")
