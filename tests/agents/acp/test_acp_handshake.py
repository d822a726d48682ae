"""Opening a session: what is sent, and that mode, model and effort are what was asked for or it fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from acp_pipes import Refuse, Scripted

from pytest_benchflow.agents import AcpSession, SessionPlan, open_session
from pytest_benchflow.agents.acp.choices import Choices, other_model, same_model
from pytest_benchflow.agents.registry import built_in_manifest
from pytest_benchflow.core.errors import HandshakeError, ProviderError, UsageError
from pytest_benchflow.core.types import Json

PLAN = SessionPlan("/app")


def option(name: str, current: str, *values: str, category: str | None = None) -> dict[str, Json]:
    options: list[Json] = [{"value": value, "name": value} for value in values]
    return {"id": name, "category": category, "type": "select", "currentValue": current, "options": options}


def models(current: str, *ids: str) -> Json:
    return {"currentModelId": current, "availableModels": [{"modelId": name, "name": name} for name in ids]}


class Agent(Scripted):
    """An agent that offers options, models and modes, and does as it is told unless a test says otherwise."""

    def __init__(self, *options: dict[str, Json], obeys: bool = True, **offer: Json) -> None:
        self.options = {str(item["id"]): item for item in options}
        self.obeys = obeys
        new: dict[str, Json] = {"sessionId": "s", "configOptions": [*options], **offer}
        super().__init__(
            initialize={"protocolVersion": 1, "authMethods": [{"id": "key"}], "agentInfo": {"name": "agent"}},
            session_new=new,
            session_set_config_option=self.set_option,
            session_prompt=self.answer,
        )

    def set_option(self, params: dict[str, Json]) -> Json:
        chosen = self.options[str(params["configId"])]
        if self.obeys:
            chosen["currentValue"] = params["value"]
        return {"configOptions": [*self.options.values()]}

    def answer(self, params: dict[str, Json]) -> Json:
        self.notify({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "done"}})
        return {"stopReason": "end_turn"}

    def asked(self, method: str) -> list[dict[str, Json]]:
        return [params for name, params in self.sent if name == method]


async def opened(agent: Scripted, plan: SessionPlan) -> AcpSession:
    return await open_session(agent, plan, emit=lambda event: None, log=lambda data: None)


async def refused(agent: Scripted, plan: SessionPlan, error: type[Exception] = UsageError) -> str:
    with pytest.raises(error) as caught:
        await opened(agent, plan)
    assert agent.killed
    return str(caught.value)


async def test_it_promises_nothing_that_it_does_not_keep() -> None:
    agent = Agent()
    server: dict[str, Json] = {"name": "x", "command": "/bin/x", "args": [], "env": []}
    await opened(agent, replace(PLAN, mcp_servers=(server,)))
    (introduction,) = agent.asked("initialize")
    assert introduction["protocolVersion"] == 1
    assert introduction["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    }
    assert agent.asked("session/new") == [{"cwd": "/app", "mcpServers": [server]}]
    assert [name for name, _ in agent.sent] == ["initialize", "session/new"]


@pytest.mark.parametrize(("method", "sent"), [("key", [{"methodId": "key"}]), ("oauth", []), (None, [])])
async def test_it_authenticates_in_the_way_asked_for_if_offered(method: str | None, sent: list[Json]) -> None:
    agent = Agent()
    await opened(agent, replace(PLAN, auth_method=method))
    assert agent.asked("authenticate") == sent


@pytest.mark.parametrize(
    ("mode", "sent"), [("yolo", [{"sessionId": "s", "modeId": "yolo"}]), ("default", []), ("other", []), (None, [])]
)
async def test_it_switches_to_a_mode_if_offered(mode: str | None, sent: list[Json]) -> None:
    modes: Json = {"currentModeId": "default", "availableModes": [{"id": "default"}, {"id": "yolo"}]}
    agent = Agent(modes=modes)
    await opened(agent, replace(PLAN, mode=mode))
    assert agent.asked("session/set_mode") == sent


async def test_a_mode_may_be_an_option() -> None:
    agent = Agent(option("mode", "ask", "ask", "yolo"))
    await opened(agent, replace(PLAN, mode="yolo"))
    assert agent.options["mode"]["currentValue"] == "yolo"


async def test_a_mode_that_is_offered_and_refused_is_an_error() -> None:
    agent = Agent(modes={"currentModeId": "a", "availableModes": [{"id": "yolo"}]})

    def refuse(params: dict[str, Json]) -> Json:
        raise Refuse("not in an untrusted folder")

    agent._handlers["session_set_mode"] = refuse
    assert "not in an untrusted folder" in await refused(agent, replace(PLAN, mode="yolo"), HandshakeError)


@pytest.mark.parametrize("name", ["model", "llm"])
async def test_a_model_is_chosen_by_its_option(name: str) -> None:
    agent = Agent(option(name, "small", "small", "large", category="model"), models=models("small", "small", "large"))
    session = await opened(agent, replace(PLAN, model="large"))
    assert agent.asked("session/set_config_option") == [{"sessionId": "s", "configId": name, "value": "large"}]
    assert not agent.asked("session/set_model")
    assert session.model == "large"


async def test_options_may_come_in_groups() -> None:
    group: Json = {"group": "a", "name": "A", "options": [{"value": "large", "name": "Large"}]}
    agent = Agent({**option("model", "small"), "options": [group]})
    assert (await opened(agent, replace(PLAN, model="large"))).model == "large"


@pytest.mark.parametrize("by", ["auto", "set-model"])
async def test_a_model_is_chosen_by_set_model(by: str) -> None:
    agent = Agent(models=models("small", "small", "large"))
    session = await opened(agent, replace(PLAN, model="large", model_by=by))
    assert agent.asked("session/set_model") == [{"sessionId": "s", "modelId": "large"}]
    assert session.model == "large"


async def test_set_model_can_be_preferred_to_the_option() -> None:
    agent = Agent(option("model", "small", "small", "large"), models=models("small", "small", "large"))
    session = await opened(agent, replace(PLAN, model="large", model_by="set-model"))
    assert agent.asked("session/set_model")
    assert session.model == "large"


async def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    agent = Agent(option("model", "gpt-6-sol", "gpt-6-sol", "gpt-6-luna"))
    told = await refused(agent, replace(PLAN, model="gpt-6-lunar"))
    assert told == (
        "agent does not know the model 'gpt-6-lunar'; did you mean gpt-6-luna? It knows gpt-6-sol, gpt-6-luna"
    )
    assert not agent.asked("session/prompt")


async def test_a_long_list_of_models_is_cut() -> None:
    agent = Agent(models=models("m0", *[f"m{number}" for number in range(100)]))
    told = await refused(agent, replace(PLAN, model="something-else"))
    assert told.endswith("m29, and 70 more")


async def test_without_a_choice_of_models_none_can_be_asked_for() -> None:
    assert "offers no choice of models" in await refused(Agent(), replace(PLAN, model="large"))


async def test_a_model_that_is_not_taken_is_an_error() -> None:
    agent = Agent(option("model", "small", "small", "large"), obeys=False)
    assert "runs small instead of large" in await refused(agent, replace(PLAN, model="large"))


async def test_a_model_whose_choice_is_refused_is_an_error() -> None:
    agent = Agent(models=models("small", "small", "large"))

    def refuse(params: dict[str, Json]) -> Json:
        raise Refuse("not on your plan")

    agent._handlers["session_set_model"] = refuse
    assert "not on your plan" in await refused(agent, replace(PLAN, model="large"), HandshakeError)


async def test_a_choice_may_be_reported_a_little_later() -> None:
    agent = Agent(option("model", "small", "small", "large"))

    def later(params: dict[str, Json]) -> Json:
        told = option("model", "large", "small", "large")
        update: dict[str, Json] = {"sessionUpdate": "config_option_update", "configOptions": [told]}
        asyncio.get_running_loop().call_later(0.05, agent.notify, update)
        return {}

    agent._handlers["session_set_config_option"] = later
    assert (await opened(agent, replace(PLAN, model="large"))).model == "large"


@pytest.mark.parametrize(
    "reported", ["large", "provider/large", "large[high]", "$runtime|openai|large(openai)", "default"]
)
async def test_a_model_chosen_at_launch_is_checked_against_what_is_reported(reported: str) -> None:
    agent = Agent(option("model", reported, reported))
    await opened(agent, replace(PLAN, model="large", model_by="launch", quirks=built_in_manifest("qwen").quirks))
    assert not agent.asked("session/set_config_option")


async def test_a_model_chosen_at_launch_need_not_be_reported() -> None:
    await opened(Agent(), replace(PLAN, model="large", model_by="launch"))


async def test_another_model_than_the_one_chosen_at_launch_is_an_error() -> None:
    agent = Agent(models=models("small", "small", "large"))
    assert "runs small instead of large" in await refused(agent, replace(PLAN, model="large", model_by="launch"))


@pytest.mark.parametrize(
    ("name", "category", "asked_by"),
    [
        ("effort", "thought_level", None),
        ("reasoning_effort", None, None),
        ("depth", "thinking", None),
        ("x", None, "x"),
    ],
)
async def test_an_effort_is_chosen_by_the_option_about_it(
    name: str, category: str | None, asked_by: str | None
) -> None:
    agent = Agent(option(name, "low", "low", "high", category=category))
    await opened(agent, replace(PLAN, effort="high", effort_option=asked_by))
    assert agent.asked("session/set_config_option") == [{"sessionId": "s", "configId": name, "value": "high"}]


async def test_an_effort_that_is_set_already_is_left_alone() -> None:
    agent = Agent(option("effort", "high", "low", "high"))
    await opened(agent, replace(PLAN, effort="high"))
    assert not agent.asked("session/set_config_option")


async def test_an_effort_may_be_part_of_the_models_name() -> None:
    agent = Agent(models=models("m[low]", "m[low]", "m[high]"))
    session = await opened(agent, replace(PLAN, model="m", model_by="launch", effort="high"))
    assert agent.asked("session/set_model") == [{"sessionId": "s", "modelId": "m[high]"}]
    assert session.model == "m[high]"


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (Agent(option("effort", "low", "low", "high")), "does not know the effort 'hihg'; did you mean high?"),
        (Agent(), "offers no choice of effort"),
        (Agent(option("effort", "low", "low", "hihg"), obeys=False), "runs with effort low instead of hihg"),
    ],
)
async def test_an_effort_that_cannot_be_had_is_an_error(agent: Agent, told: str) -> None:
    assert told in await refused(agent, replace(PLAN, effort="hihg"))


async def test_an_agent_that_changes_its_model_by_itself_is_found_out() -> None:
    agent = Agent(option("model", "large", "small", "large"))
    session = await opened(agent, replace(PLAN, model="large"))

    def fall_back(params: dict[str, Json]) -> Json:
        told = option("model", "small", "small", "large")
        agent.notify({"sessionUpdate": "config_option_update", "configOptions": [told]})
        return agent.answer(params)

    agent._handlers["session_prompt"] = fall_back
    with pytest.raises(ProviderError, match="went over from large to small by itself"):
        await session.prompt("Work.", timeout_sec=60)
    await session.close()


async def test_models_with_an_effort_in_their_name_are_listed_once() -> None:
    agent = Agent(option("model", "a", "a", "b"), models=models("a[low]", "a[low]", "a[high]", "b[low]", "c[low]"))
    assert (await refused(agent, replace(PLAN, model="x"))).endswith("it knows a, b, c[low]")


async def test_messages_call_the_agent_as_the_plan_does() -> None:
    assert (await refused(Agent(), replace(PLAN, model="x", name="codex-acp"))).startswith("codex-acp offers no")


@pytest.mark.parametrize(
    ("asked", "reported", "same"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "a[medium]", True),
        ("a[low]", "a", True),
        ("a[low]", "a[high]", False),
        ("a", "mock/a", True),
        ("mock/a", "a", True),
        ("a", "custom:a", True),
        ("a", "aa", False),
        ("opus", "opus[1m]", True),
        ("gemini-3-flash", "gemini-3-flash-preview", False),
        ("custom:a", "a", True),
        ("claude-haiku-4-5", "claude-haiku-4-5-20251001", True),
        ("gpt-5.2", "gpt-5.2-2025-12-11", True),
        ("gpt-5", "gpt-5-mini", False),
    ],
)
def test_names_of_one_model(asked: str, reported: str, same: bool) -> None:
    assert same_model(asked, reported) is same


def test_a_name_that_holds_the_model_is_read_by_a_pattern() -> None:
    choices = Choices(built_in_manifest("qwen").quirks.reported_model)
    choices.take({"models": {"currentModelId": "$runtime|openai|a(b)(openai)"}})
    assert choices.reported_model("model") == "a(b)"
    choices.take({"models": {"currentModelId": "a"}})
    assert choices.reported_model("model") == "a"
    choices.aliases = {"a": "a-1-0"}
    assert choices.reported_model("model") == "a-1-0"


@pytest.mark.parametrize(
    ("asked", "used", "other"),
    [
        ("pro", ["pro"], None),
        ("pro", ["flash", "pro"], "flash"),
        ("pro", ["pro", "unheard-of"], "unheard-of"),
        ("pro", ["flash"], "flash"),
        ("pro", [], None),
        ("auto", ["flash"], None),
        ("opus", ["claude-opus-5-5"], None),
        ("opus", ["claude-opus-5-5", "claude-opus-5-0"], "claude-opus-5-0"),
    ],
)
def test_a_model_that_answered_beside_or_in_place_of_another(asked: str, used: list[str], other: str | None) -> None:
    assert other_model(asked, used, ["auto", "pro", "flash"]) == other


async def test_what_an_agent_says_before_it_is_asked_is_no_answer() -> None:
    agent = Agent()
    agent._handlers["session_prompt"] = {"stopReason": "end_turn"}
    session = await opened(agent, PLAN)
    agent.notify({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Welcome to the agent."}})
    await session.next_report()
    with pytest.raises(ProviderError, match="without an answer of its model"):
        await session.prompt("Go.", timeout_sec=5)
    await session.close()
