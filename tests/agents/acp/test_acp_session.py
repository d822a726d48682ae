"""A session on pipes that behave in ways a real one does only now and then."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from acp_pipes import Scripted

from pytest_benchflow.agents import AgentOutcome, Session, SessionPlan, open_session
from pytest_benchflow.agents.manifest import Quirks
from pytest_benchflow.core.errors import ProviderError, SandboxError
from pytest_benchflow.core.types import Event, Json

PLAN = SessionPlan("/app", cancel_grace_sec=0.05)
HELLO: dict[str, Json] = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hello"}}


class Agent(Scripted):
    """Says hello and ends its turn."""

    def __init__(self) -> None:
        super().__init__(session_new={"sessionId": "s"}, session_prompt=self.answer)

    def answer(self, params: dict[str, Json]) -> Json:
        self.notify(HELLO)
        return {"stopReason": "end_turn"}


class Late(Agent):
    """Says more when its turn has ended."""

    def answer(self, params: dict[str, Json]) -> Json:
        self._later(20)
        return super().answer(params)

    def _later(self, rounds: int) -> None:
        if rounds:
            asyncio.get_running_loop().call_soon(self._later, rounds - 1)
        else:
            self.notify({"sessionUpdate": "agent_message_chunk", "content": " again"})


class Flooding(Agent):
    """Always has something to read: a reader that waits for an empty pipe never gets to anything else."""

    flooding = False

    async def write(self, data: bytes) -> None:
        if json.loads(data)["method"] == "session/prompt":
            self.flooding = True
            self._output.put_nowait(b"\n")
        else:
            await super().write(data)

    async def read(self, n: int = 65536) -> bytes:
        if self.flooding and not self.killed:
            message = {"jsonrpc": "2.0", "method": "session/update", "params": {"update": HELLO}}
            return json.dumps(message).encode() + b"\n"
        return await super().read(n)


class Asking(Agent):
    """Asks and asks, and reads no answer."""

    asked = 0
    prompted = False

    async def write(self, data: bytes) -> None:
        message = json.loads(data)
        if "method" not in message:
            await asyncio.Event().wait()
        elif message["method"] == "session/prompt":
            self.prompted = True
            self._output.put_nowait(b"\n")
        elif message["method"] != "session/cancel":
            await super().write(data)

    async def read(self, n: int = 65536) -> bytes:
        if not self.prompted or self.killed:
            return await super().read(n)
        await asyncio.sleep(0)
        self.asked += 1
        return b'{"jsonrpc":"2.0","id":%d,"method":"vendor/ask"}\n' % self.asked


class Lost(Agent):
    """Loses its sandbox when it is prompted."""

    async def write(self, data: bytes) -> None:
        if json.loads(data)["method"] == "session/prompt":
            self._output.put_nowait(b"")
        else:
            await super().write(data)

    async def wait(self) -> int:
        raise SandboxError("the container is gone")


class Unkillable(Agent):
    """Cannot be killed."""

    async def kill(self) -> None:
        await asyncio.Event().wait()


async def test_what_is_said_right_after_the_answer_belongs_to_the_turn() -> None:
    events: list[Event] = []
    session = await open_session(Late(), PLAN, emit=events.append, log=lambda data: None)
    result = await session.prompt("Work.", timeout_sec=60)
    await session.close()
    assert result.message == "Hello again"
    assert [event["type"] for event in events] == ["user_message", "agent_message", "stop"]


async def test_a_flood_cannot_stop_the_clock() -> None:
    session = await open_session(Flooding(), PLAN, emit=lambda event: None, log=lambda data: None)
    result = await session.prompt("Work.", timeout_sec=0.1)
    assert result.outcome is AgentOutcome.TIMED_OUT


async def test_an_agent_that_reads_no_answers_is_not_read_for_ever() -> None:
    agent = Asking()
    session = await open_session(agent, PLAN, emit=lambda event: None, log=lambda data: None)
    prompting = asyncio.create_task(session.prompt("Work.", timeout_sec=None))
    for _ in range(2000):
        await asyncio.sleep(0)
    assert 100 < agent.asked < 300
    prompting.cancel()
    await asyncio.wait([prompting])
    await session.close()


async def test_a_sandbox_that_is_lost_is_not_the_agents_doing() -> None:
    session = await open_session(Lost(), PLAN, emit=lambda event: None, log=lambda data: None)
    with pytest.raises(SandboxError, match="the container is gone"):
        await session.prompt("Work.", timeout_sec=60)
    await session.close()


async def test_an_agent_that_cannot_be_killed_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_benchflow.agents.acp.connection._KILL_SEC", 0.05)
    session = await open_session(Unkillable(), PLAN, emit=lambda event: None, log=lambda data: None)
    with pytest.raises(SandboxError, match="could not be killed"):
        await session.close()


async def test_a_log_that_cannot_be_written_ends_the_session() -> None:
    def full(data: bytes) -> None:
        raise OSError(28, "No space left on device")

    agent = Agent()
    session = await open_session(agent, PLAN, emit=lambda event: None, log=full)
    agent._output.put_nowait(b"a line of log\n")
    with pytest.raises(OSError, match="No space left"):
        await session.prompt("Work.", timeout_sec=60)
    await session.close()


class Switching(Agent):
    """Reports in its answer, and in notifications of its own, which models have answered."""

    def __init__(self, *turns: list[str]) -> None:
        super().__init__()
        self._turns = [*turns]

    def answer(self, params: dict[str, Json]) -> Json:
        first, *others = self._turns.pop(0)
        for model in others:
            self._put({"method": "_own/message", "params": {"message": {"model": model}}})
        usage: list[Json] = [{"model": first}]
        return {**super().answer(params), "_meta": {"quota": {"model_usage": usage}}}  # type: ignore[dict-item]


MODEL_PLAN = replace(
    PLAN,
    name="mine",
    model="big",
    model_by="launch",
    model_aliases={"huge": "big"},
    quirks=Quirks(update_models=("message.model",), helper_models=("small",)),
)


@pytest.mark.parametrize(
    ("turns", "other"),
    [
        ([["big"], ["big", "small-2"]], None),
        ([["big", "other"]], "other"),
        ([["big"], ["other"]], "other"),
        ([["auto", "big"]], None),
        ([["big-20260101"]], None),
        ([["huge", "big"]], None),
    ],
)
async def test_every_model_that_answers_is_recorded_and_has_to_be_the_one_asked_for(
    turns: list[list[str]], other: str | None
) -> None:
    events: list[Event] = []
    session = await open_session(Switching(*turns), MODEL_PLAN, emit=events.append, log=lambda data: None)
    for _ in turns[1:]:
        await session.prompt("Work.", timeout_sec=60)
    if other is None:
        await session.prompt("Work.", timeout_sec=60)
    else:
        with pytest.raises(ProviderError, match="mine went over from big to other by itself"):
            await session.prompt("Work.", timeout_sec=60)
    await session.close()
    stops = [event["models"] for event in events if event["type"] == "stop"]
    assert stops == [[model for model in turn if model not in ("auto", "huge")] for turn in turns]


async def test_it_is_a_session() -> None:
    session = await open_session(Agent(), PLAN, emit=lambda event: None, log=lambda data: None)
    assert isinstance(session, Session)
    await session.close()
