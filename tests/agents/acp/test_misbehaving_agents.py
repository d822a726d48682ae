"""Agents that do one thing wrong, each a real program: the session says what happened and nothing stays behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from acp_pipes import HERE, Program, python

from pytest_benchflow.agents import AcpSession, AgentOutcome, PromptResult, SessionPlan, open_session, reject_all
from pytest_benchflow.core.errors import AgentError, BenchflowError, Category, HandshakeError, ProviderError
from pytest_benchflow.core.types import Event

PLAN = SessionPlan("/app", cancel_grace_sec=0.2)
Open = Callable[..., Awaitable["Talk"]]


class Talk:
    """A session with a misbehaving agent, and all it left."""

    def __init__(self) -> None:
        self.session: AcpSession
        self.process: Program
        self.events: list[Event] = []
        self.log = bytearray()
        self.heard = lambda: None

    async def open(self, name: str, argument: str = "", *, plan: SessionPlan = PLAN) -> Talk:
        self.process = await Program.start(python(HERE / "misbehaving_agent.py", name, argument))
        self.session = await open_session(self.process, plan, emit=self._emit, log=self._note)
        return self

    async def prompt(self, text: str = "Work.", timeout_sec: float | None = 60) -> PromptResult:
        return await self.session.prompt(text, timeout_sec=timeout_sec)

    def of_type(self, name: str) -> list[Event]:
        return [event for event in self.events if event["type"] == name]

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        if event["type"] == "tool_call_start":
            self.heard()

    def _note(self, data: bytes) -> None:
        self.log += data


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    talk = Talk()
    yield talk
    if hasattr(talk, "session"):
        await talk.session.close()
    if hasattr(talk, "process"):
        await talk.process.kill()


NOISE = {
    "a banner": b"Welcome to the agent!\nLoading ...\n",
    "a scalar": b"42\n",
    "null": b"null\n",
    "true": b"true\n",
    "a string": b'"x"\n',
    "a list": b"[1, 2]\n",
    "an empty list": b"[]\n",
    "an empty object": b"{}\n",
    "a JSON log line": b'{"level": "info", "id": 100002, "result": 1}\n',
    "half an object": b'{"jsonrpc": "2.0", "id"\n',
    "broken JSON that names the protocol": b'{"jsonrpc": "2.0", }}}\n',
    "empty lines": b"\n\r\n \t\n",
    "bad UTF-8": b"\xff\xfe\xc3(\n",
    "bad UTF-8 in a message": b'{"jsonrpc":"2.0","method":"x/y","params":{"a":"\xff"}}\n',
    "an unhashable id": b'{"jsonrpc":"2.0","id":{"a":1},"result":{}}\n',
    "a list as id of a request": b'{"jsonrpc":"2.0","id":[1],"method":"x/y"}\n',
    "a bool as id": b'{"jsonrpc":"2.0","id":true,"result":{}}\n',
    "an answer to nothing": b'{"jsonrpc":"2.0","id":4711,"result":{}}\n',
    "an error to nothing": b'{"jsonrpc":"2.0","id":100099,"error":"text"}\n',
    "a number as method": b'{"jsonrpc":"2.0","method":5}\n',
    "parameters that are no object": b'{"jsonrpc":"2.0","method":"session/update","params":7}\n',
    "no parameters": b'{"jsonrpc":"2.0","method":"session/update"}\n',
    "an update that is no object": b'{"jsonrpc":"2.0","method":"session/update","params":{"update":[1]}}\n',
    "an unknown update": b'{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"x"}}}\n',
    "a vendor's notification": b'{"jsonrpc":"2.0","method":"_vendor/x","params":{"update":null}}\n',
    "an echo of ours": b'{"jsonrpc":"2.0","id":100002,"method":"session/prompt","params":{}}\n',
    "deep nesting": b"[" * 50_000 + b"\n",
    "a message nested deeply": b'{"jsonrpc":"2.0","method":"x/y","params":' + b"[" * 20_000 + b"]" * 20_000 + b"}\n",
    "a very long number": b'{"jsonrpc":"2.0","method":"x/y","params":' + b"9" * 10_000 + b"}\n",
    "escape sequences": b"\x1b[2J\x1b[31mred\x1b[0m\n",
    "zero bytes": b"\x00\x00\n",
    "a byte order mark": b"\xef\xbb\xbf\n",
}


LARGE = {name: noise for name, noise in NOISE.items() if len(noise) > 5000}
HEAPS = {
    "printed": b"".join(noise for noise in NOISE.values() if b"jsonrpc" not in noise and len(noise) <= 5000),
    "nearly a message": b"".join(noise for noise in NOISE.values() if b"jsonrpc" in noise and len(noise) <= 5000),
    **LARGE,
}


@pytest.mark.parametrize("noise", HEAPS.values(), ids=HEAPS.keys())
async def test_noise_is_stepped_over(talk: Talk, noise: bytes) -> None:
    await talk.open("noise", noise.hex())
    result = await talk.prompt()
    assert (result.outcome, result.message) == (AgentOutcome.COMPLETED, "done")
    assert [event["text"] for event in talk.of_type("agent_message")] == ["done"]
    for line in (b"Welcome to the agent!\n", b"Loading ...\n"):
        assert talk.log.count(line) == 2 * noise.count(line)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("glued", "done"),
        ("in_single_bytes", "done é"),
        ("without_last_line_end", "done"),
        ("stdout_flood", "done"),
        ("updates_after_the_answer", "done"),
        ("request_flood", "2000 of {-32601}"),
    ],
)
async def test_odd_output_is_understood(talk: Talk, name: str, message: str) -> None:
    await talk.open(name)
    result = await talk.prompt()
    assert (result.outcome, result.message) == (AgentOutcome.COMPLETED, message)


@pytest.mark.parametrize("depth", [50, 900, 975, 5000])
async def test_nothing_is_too_deep(talk: Talk, depth: int) -> None:
    await talk.open("nests_deeply", str(depth))
    assert (await talk.prompt()).message == "done"
    assert len(talk.of_type("tool_call_start")) == (depth < 100)
    for event in talk.events:
        assert json.dumps(event).count("[") < 150


async def test_a_line_over_the_limit_is_skipped_and_noted(talk: Talk) -> None:
    await talk.open("huge_line")
    assert (await talk.prompt()).message == "done"
    assert b"a line of 100000064 bytes was skipped" in talk.log
    assert len(talk.log) < 200


async def test_all_of_a_flood_on_standard_error_is_logged(talk: Talk) -> None:
    await talk.open("stderr_flood")
    assert (await talk.prompt()).message == "done"
    await talk.session.close()
    assert talk.log.count(b"log line\n") == 400_000


@pytest.mark.parametrize(("name", "status"), [("update_before_call", "completed"), ("call_without_end", "in_progress")])
async def test_a_tool_call_is_one_event_however_it_is_told(talk: Talk, name: str, status: str) -> None:
    await talk.open(name)
    result = await talk.prompt()
    calls = talk.of_type("tool_call")
    assert [(call["tool_call_id"], call["title"], call["status"]) for call in calls] == [("a", "Run", status)]
    assert len(talk.of_type("tool_call_start")) == result.n_tool_calls == 1
    assert result.outcome is AgentOutcome.COMPLETED


async def test_plans_and_images_are_kept(talk: Talk) -> None:
    await talk.open("only_other_things")
    await talk.prompt()
    (plan,) = talk.of_type("plan")
    (image,) = talk.of_type("agent_message")
    assert plan["entries"] == [{"content": "Think", "status": "pending", "priority": "low"}]
    assert image["content"] == {"type": "image", "data": "aGk=", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("name", "argument", "outcome", "detail", "stop_reason"),
    [
        ("stops", "end_turn", AgentOutcome.COMPLETED, None, "end_turn"),
        ("stops", "out_of_ideas", AgentOutcome.COMPLETED, "stopped with out_of_ideas", "out_of_ideas"),
        ("stops", "refusal", AgentOutcome.GAVE_UP, "stopped with refusal", "refusal"),
        ("stops", "max_tokens", AgentOutcome.GAVE_UP, "stopped with max_tokens", "max_tokens"),
        ("stops", "max_turn_requests", AgentOutcome.GAVE_UP, "stopped with max_turn_requests", "max_turn_requests"),
        ("stops", "cancelled", AgentOutcome.GAVE_UP, "stopped with cancelled", "cancelled"),
        ("null_answer", "", AgentOutcome.COMPLETED, "stopped with unknown", None),
        ("error_later", "", AgentOutcome.GAVE_UP, "context too long", None),
        ("dies", "something", AgentOutcome.CRASHED, "exited with status 3: out of memory", None),
        ("is_killed", "", AgentOutcome.CRASHED, "exited with status 137", None),
    ],
)
async def test_the_way_it_ends_is_recorded(
    talk: Talk, name: str, argument: str, outcome: AgentOutcome, detail: str | None, stop_reason: str | None
) -> None:
    await talk.open(name, argument)
    result = await talk.prompt()
    assert (result.outcome, result.detail, result.stop_reason) == (outcome, detail, stop_reason)
    assert talk.session.answered
    assert talk.of_type("agent_message") == [{"type": "agent_message", "text": "something"}]
    assert talk.events[-1]["type"] == "stop"
    assert talk.events[-1]["stop_reason"] == stop_reason


async def test_an_agent_that_closes_its_output_is_killed(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_benchflow.agents.acp.connection._WAIT_SEC", 0.1)
    await talk.open("closes_its_output")
    result = await talk.prompt()
    assert (result.outcome, result.detail) == (AgentOutcome.CRASHED, "closed its output")
    assert talk.process.killed


@pytest.mark.parametrize(
    ("name", "argument", "error", "told", "advice"),
    [
        ("silent", "", ProviderError, "without an answer of its model", None),
        ("says_and_ends", "API Error: 401 invalid x-api-key", ProviderError, "API Error: 401", "check the API key"),
        ("says_and_ends", "Error: HTTP 500 from the provider", ProviderError, "HTTP 500", None),
        ("error", '"no such key: 401"', ProviderError, "no such key: 401", "check the API key"),
        ("error", '{"code": 401, "message": "denied"}', ProviderError, "denied (code 401)", "check the API key"),
        ("error", '{"code": -32603, "message": "Internal", "data": "429 too many"}', ProviderError, "429", "limits"),
        ("error", "[1, 2]", ProviderError, "[1, 2]", None),
        ("dies", "", AgentError, "exited with status 3: out of memory before its model answered", None),
    ],
)
async def test_without_an_answer_of_the_model_it_is_an_error(
    talk: Talk, name: str, argument: str, error: type[BenchflowError], told: str, advice: str | None
) -> None:
    await talk.open(name, argument)
    with pytest.raises(error) as caught:
        await talk.prompt()
    assert told in caught.value.message
    assert (advice or "") in (caught.value.advice or "")
    assert not talk.session.answered
    assert talk.events[-1]["type"] == "stop"


async def test_a_later_prompt_that_fails_is_no_error_but_told(talk: Talk) -> None:
    await talk.open("good_then_failing")
    assert (await talk.prompt("first")).outcome is AgentOutcome.COMPLETED
    result = await talk.prompt("second")
    assert result.outcome is AgentOutcome.GAVE_UP
    assert "Failed to get response" in str(result.detail)
    assert talk.session.answered
    assert (await talk.prompt("third")).outcome is AgentOutcome.GAVE_UP


async def test_tokens_of_the_model_are_an_answer(talk: Talk) -> None:
    await talk.open("silent_with_usage")
    result = await talk.prompt()
    assert (result.outcome, result.usage.output) == (AgentOutcome.COMPLETED, 3)


async def test_asking_for_permission_is_an_answer(talk: Talk) -> None:
    await talk.open("asks_and_dies")
    assert (await talk.prompt()).outcome is AgentOutcome.CRASHED


@pytest.mark.parametrize(
    ("name", "argument", "timeout", "idle", "reason", "detail"),
    [
        ("hangs", "something", None, 0.5, "idle_timeout", "idle for "),
        ("hangs_in_a_call", "", 0.5, None, "wall_clock_timeout", "stopped after 0.5 s"),
        ("hangs_in_a_call", "", None, 0.5, "idle_timeout", "s, tool calls pending: slow"),
        ("floods_for_ever", "", 0.5, 0.4, "wall_clock_timeout", "stopped after 0.5 s"),
    ],
)
async def test_an_agent_over_time_is_stopped_and_killed(
    talk: Talk, name: str, argument: str, timeout: float | None, idle: float | None, reason: str, detail: str
) -> None:
    await talk.open(name, argument, plan=replace(PLAN, idle_timeout_sec=idle))
    result = await talk.prompt(timeout_sec=timeout)
    assert result.outcome is AgentOutcome.TIMED_OUT
    assert detail in str(result.detail)
    assert talk.process.killed
    (event,) = talk.of_type("agent_timeout")
    assert (event["reason"], event["timeout_sec"]) == (reason, timeout or idle)
    assert event["pending_tool_call_ids"] == (["slow"] if name == "hangs_in_a_call" else [])
    assert [call["status"] for call in talk.of_type("tool_call")] == ["cancelled"] * result.n_tool_calls


async def test_nothing_it_started_survives(talk: Talk) -> None:
    await talk.open("hangs_with_children")
    result = await talk.prompt(timeout_sec=1.0)
    child = int(str(result.message))
    async with asyncio.timeout(30):
        while _runs(child):  # noqa: ASYNC110  (nothing tells when a process that is not ours is gone)
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    """Whether a process is alive; one that nobody has buried yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("name", ["hangs", "reads_nothing"])
async def test_a_model_that_never_answers_in_time_is_an_error(talk: Talk, name: str) -> None:
    await talk.open(name)
    with pytest.raises(ProviderError, match=r"never answered within 0\.3 s"):
        await talk.prompt("x" * 1_000_000, timeout_sec=0.3)
    assert talk.process.killed
    assert talk.of_type("agent_timeout")


async def test_an_agent_that_obeys_a_cancel_still_reports(talk: Talk) -> None:
    await talk.open("can_be_cancelled", plan=replace(PLAN, cancel_grace_sec=60))
    result = await talk.prompt(timeout_sec=0.5)
    assert (result.outcome, result.stop_reason, result.usage.output) == (AgentOutcome.TIMED_OUT, "cancelled", 5)
    assert talk.of_type("agent_timeout")[0]["terminal_trajectory_complete"] is True
    assert talk.process.killed


async def test_a_permission_asked_for_while_cancelling_is_called_off(talk: Talk) -> None:
    await talk.open("asks_while_cancelled", plan=replace(PLAN, cancel_grace_sec=60))
    result = await talk.prompt(timeout_sec=0.5)
    assert result.message == " cancelled"


async def test_a_session_that_is_over_says_so(talk: Talk) -> None:
    await talk.open("hangs", "something")
    await talk.prompt(timeout_sec=0.5)
    with pytest.raises(AgentError, match=r"is over: stopped after 0\.5 s"):
        await talk.prompt()


async def test_a_cancelled_prompt_leaves_what_was_said(talk: Talk) -> None:
    await talk.open("hangs_in_a_call")
    started = asyncio.Event()
    talk.heard = started.set
    task = asyncio.create_task(talk.prompt(timeout_sec=None))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [call["title"] for call in talk.of_type("tool_call")] == ["make"]
    await talk.session.close()
    await talk.session.close()
    assert talk.process.killed


@pytest.mark.parametrize(
    ("kinds", "outcome"),
    [
        ("reject_once,allow_once,allow_always", {"outcome": "selected", "optionId": "id-allow_always"}),
        ("reject_always,allow_once", {"outcome": "selected", "optionId": "id-allow_once"}),
        ("reject_once,carry_on", {"outcome": "selected", "optionId": "id-carry_on"}),
        ("reject_once,reject_always", {"outcome": "cancelled"}),
        ("", {"outcome": "cancelled"}),
    ],
)
async def test_permission_is_given_as_far_as_it_is_offered(talk: Talk, kinds: str, outcome: dict[str, str]) -> None:
    await talk.open("asks_permission", kinds)
    result = await talk.prompt()
    assert json.loads(str(result.message)) == outcome


async def test_another_policy_can_refuse(talk: Talk) -> None:
    await talk.open("asks_permission", "allow_once,reject_once")
    talk.session.permit = reject_all
    result = await talk.prompt()
    assert json.loads(str(result.message)) == {"outcome": "selected", "optionId": "id-reject_once"}
    (event,) = talk.of_type("permission")
    assert (event["tool_call_id"], event["title"], event["option"]) == ("call", "Run it", "id-reject_once")
    assert [call["status"] for call in talk.of_type("tool_call")] == ["failed"]


@pytest.mark.parametrize("parameters", ["null", "7", '{"options": 5, "toolCall": []}', '{"options": [1, {"kind": 2}]}'])
async def test_a_broken_permission_request_is_called_off(talk: Talk, parameters: str) -> None:
    await talk.open("asks_with_broken_parameters", parameters)
    assert json.loads(str((await talk.prompt()).message)) == {"outcome": "cancelled"}


async def test_a_policy_that_fails_ends_the_prompt(talk: Talk) -> None:
    def broken(request: object) -> str:
        raise ZeroDivisionError

    await talk.open("asks_permission", "allow_once")
    talk.session.permit = broken
    with pytest.raises(ZeroDivisionError):
        await talk.prompt()


async def test_a_trajectory_that_cannot_be_written_ends_the_prompt(talk: Talk) -> None:
    def full(event: Event) -> None:
        if event["type"] == "agent_message":
            raise OSError(28, "No space left on device")

    process = await Program.start(python(HERE / "misbehaving_agent.py", "hangs", "x" * 20_000))
    session = await open_session(process, PLAN, emit=full, log=talk._note)
    with pytest.raises(OSError, match="No space left"):
        await session.prompt("Work.", timeout_sec=60)
    await session.close()
    assert process.killed


@pytest.mark.parametrize("method", ["fs/read_text_file", "_x/y"])
async def test_other_requests_are_refused(talk: Talk, method: str) -> None:
    await talk.open("asks_for", method)
    assert (await talk.prompt()).message == "-32601"


@pytest.mark.parametrize(
    ("name", "told", "category"),
    [
        ("exits_at_once", "exited with status 2: error: no such option --acp", Category.HANDSHAKE),
        (
            "never_introduces_itself",
            "did not answer initialize within 1 s; it last printed: waiting",
            Category.HANDSHAKE,
        ),
        ("speaks_another_version", "speaks version 2 of ACP", Category.HANDSHAKE),
        ("never_begins", "did not answer session/new within 1 s", Category.HANDSHAKE),
        ("wants_a_login", "Authentication required: run login", Category.CREDENTIALS),
        ("cannot_begin", "refused session/new: no space left (code -32603)", Category.HANDSHAKE),
        ("begins_without_id", "without a session id", Category.HANDSHAKE),
    ],
)
async def test_a_handshake_that_fails_tells_why(talk: Talk, name: str, told: str, category: Category) -> None:
    limit = 1 if name.startswith("never") else 60
    with pytest.raises(HandshakeError) as caught:
        await talk.open(name, plan=replace(PLAN, handshake_timeout_sec=limit))
    assert told in caught.value.message
    assert caught.value.category is category
    assert talk.process.killed


async def test_a_program_that_does_not_exist_is_not_tried_again() -> None:
    process = await Program.start(["sh", "-c", "exec /no/such/agent --acp"])
    with pytest.raises(HandshakeError, match="status 127") as caught:
        await open_session(process, PLAN, emit=lambda event: None, log=lambda data: None)
    assert not caught.value.retryable


async def test_it_introduces_both_sides(talk: Talk) -> None:
    await talk.open("silent")
    assert (talk.session.agent_name, talk.session.agent_version) == ("misbehaving", "1.2")
    assert talk.session.session_id == "s"
