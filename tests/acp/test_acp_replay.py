"""What real agents said, replayed: the right trajectory, counts, usage and outcome come out."""

from __future__ import annotations

from acp_pipes import Recording

from pytest_benchflow.acp import SessionPlan, open_session
from pytest_benchflow.agents import AgentOutcome
from pytest_benchflow.events import Event


async def test_a_recorded_session_is_replayed() -> None:
    events: list[Event] = []
    session = await open_session(
        Recording.load("pi.plain"), SessionPlan("/app"), emit=events.append, log=lambda data: None
    )
    result = await session.prompt("Create the file.", timeout_sec=60)
    await session.close()
    assert result.outcome is AgentOutcome.COMPLETED
    assert (result.n_tool_calls, result.message) == (2, "All done.")
