"""Calls of the model that fail: when an agent that tries again is stopped, and what is said of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from acp_pipes import Scripted

from pytest_benchflow.agents import SessionPlan, open_session
from pytest_benchflow.agents.acp.evidence import Evidence, FailureLog
from pytest_benchflow.agents.acp.outcome import is_hopeless
from pytest_benchflow.agents.acp.types import Findings
from pytest_benchflow.agents.manifest import ErrorReport, Quirks
from pytest_benchflow.core.errors import ProviderError
from pytest_benchflow.core.types import Event, Json

REPORTS = Quirks(errors=(ErrorReport(text=("message.error_status", "message.error")),), log_errors=("^attempt",))


class Retrying(Scripted):
    """Reports failed calls in a notification of its own, or on standard error, and never ends its turn."""

    def __init__(self, statuses: Sequence[int], printed: bytes = b"") -> None:
        super().__init__(session_new={"sessionId": "s"})
        self._statuses, self._printed = statuses, printed
        self._prompted = asyncio.Event()

    async def write(self, data: bytes) -> None:
        if b'"session/prompt"' not in data:
            await super().write(data)
            return
        self._prompted.set()
        for status in self._statuses:
            message: Json = {"error_status": status, "error": "failed"}
            self._put({"method": "_own/message", "params": {"message": message}})

    async def read_stderr(self, n: int = 65536) -> bytes:
        await self._prompted.wait()
        printed, self._printed = self._printed, b""
        return printed or await super().read_stderr(n)


async def refusal(agent: Scripted, plan: SessionPlan, **options: object) -> ProviderError:
    events: list[Event] = []
    session = await open_session(agent, plan, emit=events.append, log=lambda data: None, **options)  # type: ignore[arg-type]
    with pytest.raises(ProviderError) as error:
        await session.prompt("Work.", timeout_sec=20)
    await session.close()
    assert [event["type"] for event in events] == ["user_message", "agent_error", "stop"]
    return error.value


async def test_a_key_that_is_refused_again_ends_the_turn_at_once() -> None:
    error = await refusal(
        Retrying([401, 401]), SessionPlan("/app", name="mine", model="m", model_by="launch", quirks=REPORTS)
    )
    assert str(error) == (
        "mine got no answer from its model m, 2 calls of its model failed within 1 s: 401: failed; "
        "check the API key or login that it uses"
    )
    assert not error.retryable


async def test_what_an_agent_prints_is_evidence_too() -> None:
    agent = Retrying([], b"starting\nAttempt 1 failed: 403\nAttempt 2 fai" + b"led: 403 Forbidden\n")
    assert "403 Forbidden" in str(await refusal(agent, SessionPlan("/app", quirks=REPORTS)))


async def test_the_files_of_a_silent_agent_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_benchflow.agents.acp.session._LOOK_SEC", 0.01)
    findings = [Findings(), Findings(failures=("401 no",)), Findings(failures=("401 never",))]

    async def inspect() -> Findings:
        return findings.pop(0) if findings else Findings()

    assert "401 never" in str(await refusal(Retrying([]), SessionPlan("/app"), inspect=inspect))


async def test_a_single_failure_is_the_agents_to_mend() -> None:
    session = await open_session(
        Retrying([401]), SessionPlan("/app", quirks=REPORTS), emit=lambda event: None, log=lambda data: None
    )
    with pytest.raises(ProviderError, match=r"never answered within 0\.2 s: 401"):
        await session.prompt("Work.", timeout_sec=0.2)
    await session.close()


@pytest.mark.parametrize(
    ("report", "times", "answered", "hopeless"),
    [
        ("401 Unauthorized", [0], False, False),
        ("401 Unauthorized", [0, 0], False, True),
        ("401 Unauthorized", [0, 0], True, True),
        ("insufficient_quota", [0, 1], False, True),
        ("429 Too Many Requests", [0, 59], False, False),
        ("429 Too Many Requests", [0, 61], False, True),
        ("429 Too Many Requests", [0, 61], True, False),
        ("429 Too Many Requests", [0, 301], True, True),
        ("500 Internal Server Error", [0, 29], False, False),
        ("500 Internal Server Error", [0, 31], False, True),
        ("500 Internal Server Error", [0, 31], True, False),
        ("something odd", [0, 59], False, False),
        ("something odd", [0, 61], False, True),
        ("", [], False, False),
    ],
)
def test_patience_depends_on_the_reason_and_on_what_is_at_stake(
    report: str, times: list[float], answered: bool, hopeless: bool
) -> None:
    now = 0.0
    turn = Evidence(clock=lambda: now)
    for now in times:  # noqa: B007 - the clock reads it
        turn.report_failure(report)
    now = 1000.0
    assert is_hopeless(turn, answered=answered) is hopeless


def test_an_answer_in_between_is_a_new_beginning() -> None:
    turn = Evidence()
    turn.report_failure("401")
    turn.saw_tool_call()
    turn.report_failure("401")
    assert (turn.failures, is_hopeless(turn, answered=True)) == (1, False)


def test_a_report_with_a_status_is_the_one_to_tell() -> None:
    turn = Evidence()
    for report in ("Retrying", "503 from upstream", "Retrying again"):
        turn.report_failure(report)
    assert turn.complaint == "503 from upstream"


def test_lines_come_in_pieces_and_never_grow_without_end() -> None:
    log = FailureLog(("^failed",))
    assert log.feed(b"Fai") == []
    assert log.feed(b"led 1\nfine\nfailed 2\nfail") == ["Failed 1", "failed 2"]
    assert FailureLog(("why=(.*)",)).feed(b"2026-11-18 16:44:58,590 why=no\n") == ["no"]
    assert log.feed(b"x" * 100_000) == []
    assert len(log._begun) < 10_000
