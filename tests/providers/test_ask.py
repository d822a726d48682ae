"""One call to a model, by the official SDKs, in three wire protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from asking import WIRES, Wire
from model_server import As, Fail, Garbage, ModelServer, Reset, Stall, Verbatim
from model_server.conversation import Conversation

from pytest_benchflow.core.errors import CredentialsError
from pytest_benchflow.providers import Asker, AskError, ModelReply, Question, Sources, find_endpoint, price_of
from pytest_benchflow.providers.ask import TokenUse, is_same_model, require_sdk

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
QUESTION = Question("You are brief.", ("What is 2 + 2?",), SCHEMA)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(params=WIRES.values(), ids=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    wire: Wire = request.param
    return wire


async def ask(server: ModelServer, wire: Wire, question: Question = QUESTION, limit: float = 60) -> ModelReply:
    endpoint = find_endpoint(wire.model, Sources(wire.variables(server)), name="judge")
    async with Asker(endpoint) as asker:
        return await asker.ask(question, timeout_sec=limit)


async def test_the_answer_comes_with_model_and_tokens(server: ModelServer, wire: Wire) -> None:
    server.script("2 + 2", Verbatim('{"answer": "4"}'))
    reply = await ask(server, wire)
    assert (reply.text, reply.ending) == ('{"answer": "4"}', "complete")
    assert reply.model == wire.model.partition("/")[2]
    assert reply.tokens == TokenUse(1234, 56, 1000)
    (request,) = server.requests
    assert request.wire == wire.name
    assert request.key == "sk-judge-0123456789"
    assert request.saw("You are brief.")
    assert request.conversation is not None
    assert request.conversation.schema == SCHEMA
    settings = request.body["generationConfig"] if wire.name == "gemini" else request.body
    assert settings["temperature"] == 0.0  # type: ignore[index]


async def test_a_model_that_is_to_be_retired_is_asked_where_warnings_are_errors(server: ModelServer) -> None:
    wire = WIRES["anthropic"]
    server.script("", Verbatim("4"))
    endpoint = find_endpoint("claude-3-7-sonnet-latest", Sources(wire.variables(server)), name="judge")
    async with Asker(endpoint) as asker:
        assert (await asker.ask(Question("Be brief.", ("2 + 2?",)), timeout_sec=20)).text == "4"


async def test_a_conversation_goes_on(server: ModelServer, wire: Wire) -> None:
    server.script("Sure?", Verbatim("yes"))
    await ask(server, wire, Question("", ("What is 2 + 2?", "4", "Sure?")))
    conversation = server.requests[0].conversation
    assert conversation is not None
    assert [(turn.kind, turn.text) for turn in conversation.turns if turn.text] == [
        ("user", "What is 2 + 2?"),
        ("assistant", "4"),
        ("user", "Sure?"),
    ]


@pytest.mark.parametrize("ending", ["cut", "refused"])
async def test_an_answer_tells_how_it_ended(server: ModelServer, wire: Wire, ending: str) -> None:
    server.script("2 + 2", Verbatim("No.", ending))  # type: ignore[arg-type]
    assert (await ask(server, wire)).ending == ending


@pytest.mark.parametrize("trouble", [Fail(429, times=2, retry_after=0), Garbage(times=1), Reset(times=1)])
async def test_passing_trouble_is_tried_again(server: ModelServer, wire: Wire, trouble: Fail | Garbage | Reset) -> None:
    server.script("2 + 2", trouble, Verbatim("4"))
    assert (await ask(server, wire)).text == "4"


@pytest.mark.parametrize(("status", "retryable", "calls"), [(401, False, 1), (404, False, 1), (503, True, 3)])
async def test_failures_say_what_the_server_says(
    server: ModelServer, wire: Wire, status: int, retryable: bool, calls: int
) -> None:
    server.script("2 + 2", Fail(status, message="the reason why", retry_after=0))
    with pytest.raises(AskError, match=f"HTTP {status}.*the reason why") as caught:
        await ask(server, wire)
    assert caught.value.retryable is retryable
    assert len(server.requests) == calls


async def test_silence_ends_at_the_limit(server: ModelServer, wire: Wire) -> None:
    server.script("2 + 2", Stall())
    with pytest.raises(AskError, match=r"did not answer within 0\.7 s") as caught:
        await ask(server, wire, limit=0.7)
    assert caught.value.retryable


async def test_another_model_than_the_one_asked_is_refused(server: ModelServer, wire: Wire) -> None:
    server.script("2 + 2", As("cheaper-model-2", Verbatim("4")))
    with pytest.raises(AskError, match="was asked, and cheaper-model-2 answered"):
        await ask(server, wire)
    assert len(server.requests) == 1


async def test_what_a_model_does_not_take_is_left_out(server: ModelServer, wire: Wire) -> None:
    def picky(conversation: Conversation) -> Verbatim | Fail:
        body = server.requests
        if len(body) == 0:
            return Fail(400, message="temperature is not supported with this model")
        if len(body) == 1:
            return Fail(400, message="json_schema: unknown field response_format")
        return Verbatim("4")

    server.script("2 + 2", picky)
    assert (await ask(server, wire)).text == "4"
    last = server.requests[-1]
    assert "temperature" not in str(last.body)
    assert last.conversation is not None
    assert last.conversation.schema is None


async def test_calls_at_once_share_a_connection_and_end_alone(server: ModelServer, wire: Wire) -> None:
    server.script("2 + 2", Verbatim("4"))
    endpoint = find_endpoint(wire.model, Sources(wire.variables(server)), name="judge")
    async with Asker(endpoint) as asker:
        replies = await asyncio.gather(*(asker.ask(QUESTION, timeout_sec=60) for _ in range(8)))
    assert {reply.text for reply in replies} == {"4"}


def test_a_missing_key_is_named(wire: Wire) -> None:
    with pytest.raises(CredentialsError, match=f"{wire.key} required for model .* of the judge but not set"):
        find_endpoint(wire.model, Sources(), name="judge")


def test_a_missing_package_names_its_installation(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    endpoint = find_endpoint(wire.model, Sources({wire.key: "sk-12345678"}), name="judge")
    with pytest.raises(AskError, match=r"not installed; run: pip install 'pytest-benchflow\[judge\]'"):
        require_sdk(endpoint)


def test_google_means_gemini() -> None:
    endpoint = find_endpoint("google/gemini-3-flash", Sources({"GOOGLE_API_KEY": "k-12345678"}), name="judge")
    assert (endpoint.provider, endpoint.model, endpoint.asked) == ("gemini", "gemini-3-flash", "google/gemini-3-flash")


@pytest.mark.parametrize(
    ("asked", "answered", "same"),
    [
        ("claude-sonnet-4-6", "claude-sonnet-4-6", True),
        ("claude-sonnet-4-6", "claude-sonnet-4-6-20260217", True),
        ("gpt-5.2", "gpt-5.2-2025-12-11", True),
        ("gpt-4", "gpt-4-0613", True),
        ("gemini-2.5-flash", "models/gemini-2.5-flash-preview-05-20", True),
        ("gemini-1.5-pro", "gemini-1.5-pro-002", True),
        ("gemini-flash-latest", "gemini-3-flash-preview", True),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku-20241022", True),
        ("deepseek/deepseek-v3.2", "deepseek-v3.2", True),
        ("gpt-5.2", "gpt-5.2-mini", False),
        ("gpt-5", "gpt-5.2", False),
        ("claude-sonnet-4-6", "claude-haiku-4-5", False),
        ("claude-sonnet-latest", "claude-haiku-4-5", False),
        ("gpt-5.2-mini", "gpt-5.2", False),
    ],
)
def test_the_name_of_a_model_in_its_answer(asked: str, answered: str, same: bool) -> None:
    assert is_same_model(asked, answered) is same


def test_prices_are_those_of_the_list_and_else_unknown() -> None:
    known = find_endpoint("claude-sonnet-4-6", Sources({"ANTHROPIC_API_KEY": "k-12345678"}), name="judge")
    assert price_of(known, None, TokenUse(2234, 56, 1000)) == pytest.approx(0.004842)
    unknown = find_endpoint("openai/scripted-1", Sources({"OPENAI_API_KEY": "k-12345678"}), name="judge")
    assert price_of(unknown, "scripted-1", TokenUse(1, 1, 0)) is None
