"""What one long session with an agent costs the runner: processor time, and memory as the trajectory grows."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import measure

UPDATES = 10_000
UPDATE_BYTES = 2_000
LONGER = 10


def session(scratch: Path) -> None:
    """Print CPU and memory of a session of 10,000 updates of 20 MB (bar 1 s), and of one ten times as long."""
    costs = {}
    for times in (1, LONGER):
        done = measure.run([sys.executable, __file__, str(UPDATES * times), str(scratch / f"{times}.jsonl")], scratch)
        cpu, before, after, size = (float(word) for word in done.output.split())
        costs[times] = after
        bar = " (bar 1)" if times == 1 else ""
        print(
            f"{UPDATES * times:7} updates of {UPDATES * times * UPDATE_BYTES / 1e6:5.0f} MB: {cpu:5.2f} s of CPU{bar},"
            f" memory {before:.0f} to {after:.0f} MB, trajectory {size:.1f} MB"
        )
    print(f"ten times the length costs {costs[LONGER] - costs[1]:+.1f} MB (bar 5)")


class Script:
    """An agent in this process that has everything to say at once, in reads as large as a pipe's."""

    def __init__(self, updates: int) -> None:
        self._chunks = self._speak(updates)
        self._asked = asyncio.Event()
        self._answers: list[bytes] = []
        self._wake = asyncio.Event()
        self._prompted: int | None = None

    async def write(self, data: bytes) -> None:
        request = json.loads(data)
        if request["method"] == "session/prompt":
            self._prompted = request["id"]
        else:
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"protocolVersion": 1, "sessionId": "s"}}
            self._answers.append(json.dumps(answer).encode() + b"\n")
        self._wake.set()

    async def read(self, n: int = 65536) -> bytes:
        while not self._answers and self._prompted is None:
            self._wake.clear()
            await self._wake.wait()
        if self._answers:
            return self._answers.pop()
        chunk = next(self._chunks, None)
        if chunk is None:
            await asyncio.Event().wait()
        return chunk or b""

    def _speak(self, updates: int) -> Iterator[bytes]:
        lines = [line.encode() for line in _lines()]
        buffer = bytearray()
        for number in range(updates):
            buffer += lines[number % len(lines)].replace(b"@", b"%d" % (number // len(lines)))
            while len(buffer) >= 65536:
                yield bytes(buffer[:65536])
                del buffer[:65536]
        answer = {"jsonrpc": "2.0", "id": self._prompted, "result": {"stopReason": "end_turn"}}
        yield bytes(buffer) + json.dumps(answer).encode() + b"\n"

    async def read_stderr(self, n: int = 65536) -> bytes:
        return b""

    async def close_stdin(self) -> None:
        return

    async def wait(self) -> int:
        return 0

    async def kill(self) -> None:
        return


def _lines() -> Iterator[str]:
    """Yield updates in the mix of a busy agent: thoughts, messages, tool calls with their output, usage."""
    text = ("The quick brown fox reads 'two' files,\nthen édits one. " * 60)[: UPDATE_BYTES - 200]
    output = [{"type": "content", "content": {"type": "text", "text": text}}]
    yield _update(sessionUpdate="agent_thought_chunk", content={"type": "text", "text": text})
    for _ in range(4):
        yield _update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})
    call = {"toolCallId": "call-@"}
    yield _update(sessionUpdate="tool_call", title="Run", kind="execute", rawInput={"command": text}, **call)
    yield _update(sessionUpdate="tool_call_update", status="in_progress", content=output, **call)
    yield _update(sessionUpdate="tool_call_update", status="in_progress", content=output, **call)
    yield _update(sessionUpdate="tool_call_update", status="completed", content=output, **call)
    yield _update(sessionUpdate="usage_update", used=1000, size=200000, _meta={"note": text})


def _update(**update: object) -> str:
    message = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}
    return json.dumps(message, ensure_ascii=False) + "\n"


async def _run(updates: int, path: Path) -> None:
    from pytest_benchflow.agents import SessionPlan, open_session
    from pytest_benchflow.rollout.recorder import Trajectory

    trajectory = Trajectory(path)
    opened = await open_session(Script(updates), SessionPlan("/app"), emit=trajectory.append, log=lambda data: None)
    before = _memory()
    began = time.process_time()
    result = await opened.prompt("Work.", timeout_sec=None)
    cpu = time.process_time() - began
    assert result.n_tool_calls == updates // 10
    await opened.close()
    trajectory.close()
    print(cpu, before, _memory(), path.stat().st_size / 1e6)


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1]), Path(sys.argv[2])))
