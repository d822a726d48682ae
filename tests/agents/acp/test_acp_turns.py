"""Updates become events: merged, complete, and with nothing kept that is written."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings, strategies as st

from pytest_benchflow.agents import Quirks
from pytest_benchflow.agents.acp.updates import Turns
from pytest_benchflow.agents.registry import built_in_manifest
from pytest_benchflow.core.types import Event, Json


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """A session's turns and the events that they wrote."""

    def __init__(self, quirks: Quirks) -> None:
        self.events: list[Event] = []
        self.clock = Clock()
        self.turns = Turns(self.events.append, self.clock, quirks)
        self.turns.begin("Go.")
        self.events.clear()

    def say(self, *texts: str, thought: bool = False, **more: Json) -> None:
        kind = "agent_thought_chunk" if thought else "agent_message_chunk"
        for text in texts:
            self.turns.update({"sessionUpdate": kind, "content": {"type": "text", "text": text}, **more})

    def call(self, name: str = "c", *, is_new: bool = False, **told: Json) -> None:
        kind = "tool_call" if is_new else "tool_call_update"
        self.turns.update({"sessionUpdate": kind, "toolCallId": name, **told})

    def end(self) -> list[Event]:
        self.turns.end()
        return self.events

    def texts(self) -> list[tuple[Json, Json]]:
        return [(event["type"], event["text"]) for event in self.end() if "text" in event]

    def calls(self) -> list[Event]:
        return [event for event in self.end() if event["type"] == "tool_call"]


@pytest.fixture
async def scene() -> Scene:
    return Scene(Quirks())


async def test_pieces_of_one_kind_are_one_event(scene: Scene) -> None:
    scene.say("a", "b")
    scene.say("c", "d", thought=True)
    scene.say("e")
    assert scene.texts() == [("agent_message", "ab"), ("agent_thought", "cd"), ("agent_message", "e")]
    assert scene.turns.message == "e"


async def test_a_tool_call_comes_between_two_messages(scene: Scene) -> None:
    scene.say("a")
    scene.call(status="completed")
    scene.say("b")
    assert [event["type"] for event in scene.end()] == [
        "agent_message",
        "tool_call_start",
        "tool_call",
        "agent_message",
    ]


async def test_updates_that_leave_no_event_do_not_come_between(scene: Scene) -> None:
    scene.say("a")
    scene.turns.update({"sessionUpdate": "usage_update", "used": 5})
    scene.turns.update({"sessionUpdate": "available_commands_update", "availableCommands": []})
    scene.say("b")
    assert scene.texts() == [("agent_message", "ab")]


async def test_messages_with_ids_of_their_own_stay_apart(scene: Scene) -> None:
    scene.say("a", "b", messageId="1")
    scene.say("c", messageId="2")
    assert scene.texts() == [("agent_message", "ab"), ("agent_message", "c")]


async def test_a_long_message_is_written_in_parts(scene: Scene) -> None:
    scene.say(*["x" * 1000] * 40)
    parts = scene.end()
    assert [part.get("continues", False) for part in parts] == [False, True, True]
    assert "".join(str(part["text"]) for part in parts) == "x" * 40_000
    assert max(len(str(part["text"])) for part in parts) <= 17_000
    assert scene.turns.message == "x" * 16_000


async def test_what_was_said_is_written_even_if_nothing_follows(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_benchflow.agents.acp.updates._FLUSH_SEC", 0.0)
    scene.say("a")
    await asyncio.sleep(0.01)
    assert scene.events == [{"type": "agent_message", "text": "a"}]
    scene.say("b")
    assert scene.end()[1:] == [{"type": "agent_message", "text": "b", "continues": True}]
    assert scene.turns.message == "ab"


async def test_notices_of_the_agent_stand_alone() -> None:
    scene = Scene(Quirks(notices=(r"retrying \(attempt",)))
    scene.say("Retrying (attempt 1/3, waiting 2s)...", "Retrying (attempt 2/3, waiting 4s)...", "Done.")
    assert [event.get("notice", False) for event in scene.end()] == [True, True, False]
    assert scene.turns.message == "Done."


async def test_what_an_agent_says_after_its_system_failed_is_its_own() -> None:
    scene = Scene(built_in_manifest("codex-acp").quirks)

    def status(word: str) -> None:
        scene.turns.update(
            {"sessionUpdate": "session_info_update", "_meta": {"codex": {"threadStatus": {"type": word}}}}
        )

    status("systemError")
    scene.say("model mock-model not found\n\n")
    assert not scene.turns.evidence.answered
    status("active")
    scene.say("Here I am.")
    assert scene.turns.evidence.answered


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("plain", ["plain"]),
        ([{"type": "text", "text": "a"}, "b"], ["ab"]),
        ({"type": "text", "text": ""}, []),
        ({"type": "text"}, [""]),
        (None, []),
        (5, [""]),
        ({"type": "resource_link", "uri": "file:///x"}, [""]),
    ],
)
async def test_content_in_other_shapes(scene: Scene, content: Json, texts: list[str]) -> None:
    scene.turns.update({"sessionUpdate": "agent_message_chunk", "content": content})
    assert [text for _, text in scene.texts()] == texts


async def test_a_tool_call_is_told_with_all_that_was_known(scene: Scene) -> None:
    scene.call(is_new=True, title="Terminal", kind="execute", status="pending", rawInput={}, content=[])
    scene.clock.now += 1.5
    scene.call(title="ls", rawInput={"command": "ls"}, locations=[{"path": "/app"}])
    scene.clock.now += 1.0
    scene.call(status="in_progress", content=[{"type": "content", "content": {"type": "text", "text": "old"}}])
    scene.call(status="completed", rawOutput="a b", content=[])
    (call,) = scene.calls()
    started = call.pop("started_at")
    assert str(started).endswith("+00:00")
    assert call == {
        "type": "tool_call",
        "tool_call_id": "c",
        "kind": "execute",
        "title": "ls",
        "status": "completed",
        "content": [{"type": "content", "content": {"type": "text", "text": "old"}}],
        "raw_input": {"command": "ls"},
        "raw_output": "a b",
        "locations": [{"path": "/app"}],
        "duration_sec": 2.5,
    }
    assert scene.events[0] == {"type": "tool_call_start", "tool_call_id": "c", "kind": "execute", "title": "Terminal"}


async def test_words_on_a_finished_call_make_no_second_one(scene: Scene) -> None:
    scene.call(status="completed")
    scene.call(status="completed")
    scene.call(content=[{"type": "diff"}])
    scene.call(is_new=True, title="again")
    assert len(scene.calls()) == scene.turns.calls.count == 1
    late = [event for event in scene.events if event["type"] == "tool_call_update"]
    assert late == [{"type": "tool_call_update", "tool_call_id": "c", "content": [{"type": "diff"}]}]


async def test_an_id_may_be_used_again_in_the_next_turn(scene: Scene) -> None:
    scene.call(is_new=True, status="completed")
    scene.turns.begin("More.")
    assert scene.turns.calls.count == 0
    scene.call(status="completed")
    assert scene.turns.calls.count == 0
    scene.call(is_new=True, status="completed")
    assert scene.turns.calls.count == 1
    assert len(scene.calls()) == 2


async def test_output_that_comes_in_pieces_is_kept_up_to_a_limit(scene: Scene) -> None:
    scene.call(is_new=True, content=[{"type": "terminal", "terminalId": "c"}])
    for _ in range(30):
        scene.call(_meta={"terminal_output_delta": {"data": "y" * 50_000}})
    scene.call(status="completed", _meta={"terminal_exit": {"exit_code": 3, "signal": None, "terminal_id": "c"}})
    (call,) = scene.calls()
    text = call["content"][1]["content"]["text"]
    assert len(text) < 1_100_000
    assert text.endswith("[... 451424 characters left out ...]\n")
    assert call["raw_output"] == {"exit_code": 3, "signal": None}


async def test_output_may_come_at_a_path_of_the_agents_own() -> None:
    scene = Scene(Quirks(terminal_output=("out.text",), terminal_exit="out.end"))
    scene.call(is_new=True, status="completed", out={"text": "hi\n", "end": {"exit_code": 0}})
    (call,) = scene.calls()
    assert call["content"] == [{"type": "content", "content": {"type": "text", "text": "hi\n"}}]
    assert call["raw_output"] == {"exit_code": 0}


async def test_calls_that_never_end_are_written_when_there_are_too_many(scene: Scene) -> None:
    for number in range(300):
        scene.call(f"c{number}", is_new=True)
    assert len([event for event in scene.events if event["type"] == "tool_call"]) == 300 - 256
    assert len(scene.calls()) == 300


async def test_signs_of_life_of_pending_calls(scene: Scene) -> None:
    assert scene.turns.calls.last_sign is None
    scene.call("a")
    scene.clock.now = 150.0
    scene.call("b")
    scene.clock.now = 200.0
    assert (scene.turns.calls.last_sign, scene.turns.calls.pending) == (150.0, ["a", "b"])
    scene.call("b", status="failed")
    assert scene.turns.calls.last_sign == 100.0


def request(name: str = "c") -> dict[str, Json]:
    return {"toolCall": {"toolCallId": name, "title": "rm", "kind": "execute", "rawInput": {"command": "rm"}}}


async def test_a_call_known_from_its_permission_alone(scene: Scene) -> None:
    scene.turns.asked(request(), "yes", allowed=True)
    assert scene.turns.calls.count == 0
    scene.call(status="completed")
    (call,) = scene.calls()
    assert (call["title"], call["raw_input"], scene.turns.calls.count) == ("rm", {"command": "rm"}, 1)


async def test_a_permission_that_stands_for_other_calls_is_no_call(scene: Scene) -> None:
    scene.call("real", is_new=True, title="ls")
    scene.turns.asked(request("confirmation"), "no", allowed=False)
    scene.call("real", status="failed")
    assert [call["tool_call_id"] for call in scene.calls()] == ["real"]
    assert scene.turns.calls.count == 1


async def test_what_was_asked_does_not_replace_what_was_told(scene: Scene) -> None:
    scene.call(is_new=True, title="ls", rawInput={"command": "ls"})
    scene.turns.asked(request(), "yes", allowed=True)
    scene.call(status="completed")
    (call,) = scene.calls()
    assert (call["title"], call["raw_input"], call["kind"]) == ("ls", {"command": "ls"}, "execute")


async def test_calls_that_were_stopped_say_so(scene: Scene) -> None:
    scene.call(status="in_progress")
    scene.turns.end("cancelled")
    assert [call["status"] for call in scene.calls()] == ["cancelled"]


KEYS = st.sampled_from(
    [
        *("sessionUpdate", "content", "text", "type", "messageId", "toolCallId", "title", "kind", "status", "rawInput"),
        *("rawOutput", "locations", "_meta", "usage", "cost", "amount", "currency", "entries", "configOptions", "id"),
        *("terminal_output", "terminal_exit", "data", "codex", "error", "message", "reason", "inputTokens", "options"),
        *("toolCall", "currentValue", "value", "category", "modes", "models", "availableModels", "currentModeId"),
    ]
)
WORDS = st.sampled_from(["", "a", "completed", "pending", "agent_message_chunk", "tool_call", "Retrying (attempt 1"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), WORDS, st.text(max_size=5))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))
KINDS = st.sampled_from(
    [
        *("agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan", "usage_update"),
        *("config_option_update", "current_mode_update", "session_info_update", "retry_state", "unheard_of"),
    ]
)


@settings(max_examples=60)
@given(st.lists(st.tuples(KINDS, st.dictionaries(KEYS, VALUES, max_size=6)), max_size=6))
def test_no_update_breaks_it(updates: list[tuple[str, dict[str, Json]]]) -> None:
    async def play() -> list[Event]:
        scene = Scene(built_in_manifest("codex-acp").quirks)
        for kind, update in updates:
            scene.turns.update({**update, "sessionUpdate": kind})
            scene.turns.update(update)
            scene.turns.asked(update, None, allowed=False)
            scene.turns.choices.take(update)
            scene.turns.meter.end_turn(update)
        return scene.end()

    events = asyncio.run(play())
    assert json.loads(json.dumps(events)) == events
    starts = [event for event in events if event["type"] == "tool_call_start"]
    assert len(starts) == len([event for event in events if event["type"] == "tool_call"])
