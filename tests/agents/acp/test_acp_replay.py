"""What real agents said, replayed: the right trajectory, counts, usage and outcome come out."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from acp_pipes import HERE, Recording

from pytest_benchflow.agents import (
    AcpSession,
    AgentOutcome,
    AgentRegistry,
    PromptResult,
    SessionPlan,
    Usage,
    approve_all,
    open_session,
    reject_all,
)
from pytest_benchflow.core.errors import Category, ProviderError
from pytest_benchflow.core.types import Event

NAMES = sorted(path.stem for path in (HERE / "traces").glob("*.jsonl"))
#: Traces in which the model never answers; the client has to give up.
SILENT = {"claude.http401", "claude.http500", "gemini.http500", "grok.http500", "opencode.http500"}


class Replay:
    """One replayed session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.recording = Recording.load(name)
        self.events: list[Event] = []
        self.session: AcpSession

    async def open(self) -> Replay:
        emit, log = self.events.append, lambda data: None
        permit = reject_all if "reject" in self.name else approve_all
        self.session = await open_session(self.recording, self.plan(), emit=emit, log=log, permit=permit)
        return self

    def plan(self) -> SessionPlan:
        """Return the plan that makes us send what the recorded client sent."""
        sent = self.recording.sent
        methods = [params["methodId"] for params in sent("authenticate")]
        modes = [params["modeId"] for params in sent("session/set_mode")]
        models = [params["value"] for params in sent("session/set_config_option")]
        models += [params["modelId"] for params in sent("session/set_model")]
        first = {key: values[0] for key, values in zip("amo", (methods, modes, models), strict=True) if values}
        return SessionPlan(
            "/app",
            auth_method=first.get("a"),
            mode=first.get("m"),
            model=first.get("o"),
            quirks=AgentRegistry().manifest(self.name.partition(".")[0].removeprefix("zed-")).quirks,
            cancel_grace_sec=60 if "cancel" in self.name else 0.05,
        )

    async def prompts(self) -> list[PromptResult]:
        """Send the recorded prompts."""
        limit = 0.05 if "cancel" in self.name or self.name in SILENT else 60
        try:
            return [await self.session.prompt(text, timeout_sec=limit) for text in self.texts]
        finally:
            await self.session.close()

    @property
    def texts(self) -> list[str]:
        return [params["prompt"][0]["text"] for params in self.recording.sent("session/prompt")]

    def of_type(self, *names: str) -> list[Event]:
        return [event for event in self.events if event["type"] in names]


PER_TURN = {
    "claude": [Usage(6702, 168, 3000, 0.025024), Usage(4468, 112, 2000, 0.018768)],
    "codex": [Usage(3702, 168, 3000), Usage(2468, 112, 2000)],
    "copilot": [Usage(3702, 168, 3000), Usage(2468, 112, 2000)],
    "gemini": [Usage(3702, 168), Usage(2468, 112)],
    "grok": [Usage(3702, 168, 3000), Usage(2468, 112, 2000)],
    "kimi-code": [Usage(), Usage()],
    "openclaw": [Usage(), Usage()],
    # It tells of the last model call alone.
    "opencode": [Usage(1234, 56, 1000, 0.0), Usage(1234, 56, 1000, 0.0)],
    "openhands": [Usage(), Usage()],
    "pi": [Usage(), Usage()],
    "qwen": [Usage(3702, 168, 3000), Usage(2468, 112, 2000)],
    "zed-codex": [Usage(), Usage()],
}


@pytest.mark.parametrize("agent", PER_TURN)
async def test_a_task_of_two_commands(agent: str) -> None:
    replay = await Replay(f"{agent}.plain").open()
    (result,) = await replay.prompts()
    assert result == PromptResult(
        AgentOutcome.COMPLETED,
        n_tool_calls=2,
        usage=PER_TURN[agent][0],
        stop_reason="end_turn",
        message="All done.",
    )
    types = [event["type"] for event in replay.events if not event.get("notice")]
    assert [name for name in types if name != "permission"] == [
        "user_message",
        *["tool_call_start", "tool_call"] * 2,
        "agent_message",
        "stop",
    ]
    calls = replay.of_type("tool_call")
    assert [call["status"] for call in calls] == ["completed", "completed"]
    assert {call["kind"] for call in calls} <= {"execute", "read"}
    assert "hello.txt" in str(calls[0])
    assert all(isinstance(call["duration_sec"], float) and call["started_at"] for call in calls)
    stop = replay.events[-1]
    assert stop["usage"] == {
        "input": result.usage.input,
        "output": result.usage.output,
        "cached": result.usage.cached,
        "cost_usd": result.usage.cost_usd,
    }


@pytest.mark.parametrize("agent", PER_TURN)
async def test_two_turns_are_told_apart(agent: str) -> None:
    replay = await Replay(f"{agent}.edit").open()
    first, second = await replay.prompts()
    assert (first.n_tool_calls, first.message) == (2, "First turn done.")
    assert (second.n_tool_calls, second.message) == (1, "Second turn done.")
    assert [first.usage, second.usage] == PER_TURN[agent]
    assert [event["text"] for event in replay.of_type("user_message")] == replay.texts
    spoken = [event["text"] for event in replay.of_type("agent_message") if not event.get("notice")]
    assert spoken == ["First turn done.", "Second turn done."]
    assert len(replay.of_type("tool_call")) == len(replay.of_type("tool_call_start")) == 3
    assert len(replay.of_type("stop")) == 2


@pytest.mark.parametrize("agent", ["codex", "pi", "grok", "openhands", "qwen", "zed-codex", "opencode", "kimi-code"])
async def test_the_output_of_a_command_is_kept_wherever_it_comes(agent: str) -> None:
    replay = await Replay(f"{agent}.plain").open()
    await replay.prompts()
    second = replay.of_type("tool_call")[1]
    assert "hi" in str(second["content"]) + str(second.get("raw_output"))


@pytest.mark.parametrize("agent", ["claude", "codex", "copilot", "gemini", "grok", "opencode", "pi"])
async def test_a_cancel_before_the_model_answers_is_an_error(agent: str) -> None:
    replay = await Replay(f"{agent}.cancel").open()
    with pytest.raises(ProviderError, match=r"never answered within 0\.05 s"):
        await replay.prompts()
    assert replay.recording.killed
    (event,) = replay.of_type("agent_timeout")
    assert event["reason"] == "wall_clock_timeout"
    assert event["terminal_trajectory_complete"] is True
    assert replay.events[-1]["stop_reason"] == "cancelled"


FAILURES = {
    "claude.http401": ("never answered within", None),
    "claude.http500": ("never answered within", None),
    "codex.http401": ("Authentication required (code -32000)", "check the API key"),
    "codex.http500": ("We’re currently experiencing high demand", "try again later"),
    "copilot.http401": ("Error: Authentication failed with provider", "check the API key"),
    "copilot.http500": ("Error: Failed to get response from the AI model", "try again later"),
    "gemini.http401": ("mock 401", "check the API key"),
    "gemini.http500": ("never answered within", None),
    "grok.http401": ("Unauthorized (401)", "check the API key"),
    "grok.http500": ("API error (status 500 Internal Server Error)", "try again later"),
    "opencode.http401": ("mock 401", "check the API key"),
    "opencode.http500": ("never answered within", None),
    "pi.http401": ("ended its turn without an answer of its model", None),
    "pi.http500": ("Retrying (attempt 1/3", "try again later"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failing_provider_is_an_error_whatever_the_agent_says(name: str) -> None:
    told, advice = FAILURES[name]
    replay = await Replay(name).open()
    with pytest.raises(ProviderError) as caught:
        await replay.prompts()
    assert told in caught.value.message
    assert (advice or "") in (caught.value.advice or "")
    assert caught.value.category is Category.PROVIDER
    assert caught.value.retryable == (advice == "try again later")
    assert not replay.session.answered


@pytest.mark.parametrize(
    ("agent", "outcome", "calls", "statuses"),
    [
        ("claude", AgentOutcome.COMPLETED, 2, ["failed", "failed"]),
        ("gemini", AgentOutcome.COMPLETED, 2, ["failed", "completed"]),
        ("copilot", AgentOutcome.COMPLETED, 1, ["failed"]),
        ("grok", AgentOutcome.GAVE_UP, 1, ["failed"]),
        # These never ask.
        ("codex", AgentOutcome.COMPLETED, 2, ["completed", "completed"]),
        ("opencode", AgentOutcome.COMPLETED, 2, ["completed", "completed"]),
        ("pi", AgentOutcome.COMPLETED, 2, ["completed", "completed"]),
    ],
)
async def test_a_refused_permission(agent: str, outcome: AgentOutcome, calls: int, statuses: list[str]) -> None:
    replay = await Replay(f"{agent}.reject").open()
    (result,) = await replay.prompts()
    assert (result.outcome, result.n_tool_calls) == (outcome, calls)
    assert [call["status"] for call in replay.of_type("tool_call")] == statuses


@pytest.mark.parametrize(
    ("agent", "asked", "reported", "used"),
    [
        ("claude", "haiku", "haiku", ["claude-haiku-5-5"]),
        ("codex", "gpt-6-luna[low]", "gpt-6-luna", ["gpt-6-luna"]),
        ("gemini", "gemini-3-flash-preview", "gemini-3-flash-preview", ["gemini-3-flash-preview"]),
        ("opencode", "mock/mock-model-2", "mock/mock-model-2", None),
    ],
)
async def test_another_model_is_chosen(agent: str, asked: str, reported: str, used: list[str] | None) -> None:
    replay = await Replay(f"{agent}.model").open()
    assert replay.plan().model == asked
    assert replay.session.model == reported
    (result,) = await replay.prompts()
    assert result.outcome is AgentOutcome.COMPLETED
    assert replay.events[-1].get("models") == used


async def test_what_an_agent_says_of_itself_is_no_message_of_its_model() -> None:
    replay = await Replay("codex.plain").open()
    await replay.prompts()
    (notice,) = [event for event in replay.events if event.get("notice")]
    assert "Model metadata for `mock-model` not found" in str(notice["text"])
    replay = await Replay("openhands.plain").open()
    await replay.prompts()
    (notice,) = [event for event in replay.events if event.get("notice")]
    assert notice["type"] == "agent_thought"
    assert str(notice["text"]).startswith("System Prompt:")


async def test_the_page_on_trajectories_knows_every_event() -> None:
    seen = {"oracle", "agent_crash", "tool_call_update", "plan"}
    fields: set[str] = set()
    for name in NAMES:
        replay = await Replay(name).open()
        with contextlib.suppress(ProviderError):
            await replay.prompts()
        seen |= {str(event["type"]) for event in replay.events}
        fields |= {key for event in replay.events for key in event}
    page = (Path(__file__).parents[3] / "docs/trajectory.md").read_text("utf-8")
    assert not [word for word in seen | fields if f"`{word}`" not in page]


def test_every_trace_is_replayed() -> None:
    of_agents = {f"{agent}.{kind}" for agent in PER_TURN for kind in ("plain", "edit")}
    cancelled = {f"{agent}.cancel" for agent in ("claude", "codex", "copilot", "gemini", "grok", "opencode", "pi")}
    rejected = {name.replace("cancel", "reject") for name in cancelled}
    models = {f"{agent}.model" for agent in ("claude", "codex", "gemini", "opencode")}
    assert {*NAMES} == of_agents | cancelled | rejected | models | FAILURES.keys()
    assert sum(Path(HERE / "traces" / f"{name}.jsonl").stat().st_size for name in NAMES) < 600_000
