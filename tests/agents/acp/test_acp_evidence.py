"""Whether a model answered, and what the end of a prompt then means."""

from __future__ import annotations

import pytest

from pytest_benchflow.agents import AgentOutcome, Quirks
from pytest_benchflow.agents.acp.evidence import Evidence, complaint_in, is_failure
from pytest_benchflow.agents.acp.outcome import Answered, Died, Ending, Failed, TimedOut, conclude, provider_error
from pytest_benchflow.agents.acp.session import idle_at
from pytest_benchflow.agents.registry import built_in_manifest
from pytest_benchflow.core.errors import AgentError, ProviderError
from pytest_benchflow.core.types import Json

#: What agents write themselves, by the agent that does; None is any agent.
OF_THE_AGENT = [
    ("copilot", "Info: Request failed due to a transient API error. Retrying..."),
    ("copilot", "Info: Operation cancelled by user"),
    ("copilot", "Error: Authentication failed with provider at http://127.0.0.1:9/v1 (HTTP 401).\n  Check your KEY."),
    ("copilot", "Error: Failed to get response from the AI model; retried 5 times Last error: 500 mock 500"),
    ("pi-acp", "Retrying (attempt 1/3, waiting 2s)..."),
    ("pi-acp", "Retry finished, resuming."),
    ("pi-acp", "pi v0.87.1\n---\n"),
    ("codex-acp", "Warning: Model metadata for `mock-model` not found. Defaulting to fallback metadata.\n\n"),
    ("codex-acp", "Model metadata for `mock-model` not found. Defaulting to fallback metadata."),
    ("codex-acp", "We’re currently experiencing high demand, which may cause temporary errors.\n\n"),
    ("openhands", "System Prompt:\nYou are a helpful agent"),
    ("gemini", "[MODE_UPDATE] yolo"),
    (
        "claude-agent-acp",
        "There's an issue with the selected model (mock-model). It may not exist or you may not have access to it.",
    ),
    (None, 'API Error: 500 {"type":"error","error":{"type":"api_error"}}'),
    (None, "[API Error: 401 Incorrect API key provided]"),
    (None, "Please run /login · API Error: 401"),
    (None, "Credit balance is too low"),
    (None, "Invalid API key · Fix external API key"),
    (None, "LLM request failed: provider returned 503"),
    (None, "⚠️ Agent failed before reply: HTTP 401 from provider"),
    (None, "429 Too Many Requests"),
    (None, "HTTP 401: mock 401"),
    (None, "API call failed after 3 retries: HTTP 500: mock 500"),
    (None, "The model request has failed with status 503"),
    (None, '{"type":"error","error":{"message":"overloaded, 529"}}'),
    (None, "Failed to connect to the API: ECONNREFUSED"),
    (None, "Rate limit exceeded, try again in 20s"),
]
OF_THE_MODEL = [
    "All done.",
    "I created the file.",
    "Error handling is now in place: the API returns 404 for unknown ids.",
    "The server answers 401 without a key, as asked.",
    "Failed to find a file of that name, so I made one.",
    "Error",
    "The rate limit of the API is 500 requests.",
    "Note: the tests pass.",
    "200 lines were changed.",
    "The request handler no longer fails on empty bodies.",
    "x" * 3000,
    "Error: " + "the API of this library has many parts. " * 100,
]


def quirks_of(agent: str | None) -> Quirks:
    return Quirks() if agent is None else built_in_manifest(agent).quirks


@pytest.mark.parametrize(("agent", "text"), OF_THE_AGENT)
def test_an_agents_own_words_prove_nothing(agent: str | None, text: str) -> None:
    evidence = Evidence(quirks=quirks_of(agent))
    assert evidence.hear(text, is_start=True)
    assert not evidence.answered


@pytest.mark.parametrize("text", OF_THE_MODEL)
def test_anything_else_that_is_said_proves_an_answer(text: str) -> None:
    evidence = Evidence(quirks=quirks_of("copilot"))
    assert not evidence.hear(text, is_start=True)
    assert evidence.answered


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_saying_nothing_proves_nothing(text: str) -> None:
    evidence = Evidence()
    assert not evidence.hear(text, is_start=True)
    assert not evidence.answered


def test_a_piece_within_a_models_text_may_read_like_anything() -> None:
    evidence = Evidence(quirks=quirks_of("copilot"))
    evidence.hear("The provider says: ", is_start=True)
    assert not evidence.hear("HTTP 500 from the API", is_start=False)
    assert not evidence.hear("\nWarning: this needs a restart", is_start=False)
    assert evidence.complaint is None


def test_a_failure_after_an_answer_is_remembered_as_the_last_word() -> None:
    evidence = Evidence(quirks=quirks_of("copilot"))
    evidence.hear("Working.", is_start=True)
    evidence.hear("Error: Failed to get response from the AI model; Last error: 500", is_start=False)
    assert evidence.failed_last
    evidence.saw_tool_call()
    assert not evidence.failed_last


def test_the_words_of_an_agent_that_is_broken_are_its_own() -> None:
    evidence = Evidence(is_broken=True)
    assert evidence.hear("model mock-model not found", is_start=True)
    assert evidence.complaint == "model mock-model not found"
    assert not evidence.answered


@pytest.mark.parametrize(
    ("said", "error", "answered"),
    [
        (["Prompt is too long"], "Internal error: Prompt is too long", False),
        (["Prompt is", " too long"], "Internal error: Prompt is too long", False),
        (["I am at work."], "Internal error: the model went away", True),
    ],
)
def test_words_that_the_error_repeats_prove_nothing(said: list[str], error: str, answered: bool) -> None:
    evidence = Evidence()
    for number, text in enumerate(said):
        evidence.hear(text, is_start=number == 0)
    evidence.take_back("".join(said), error)
    assert evidence.answered is answered


def test_an_answer_before_the_words_that_the_error_repeats_stays_one() -> None:
    evidence = Evidence()
    evidence.hear("Let me think.", is_start=True)
    evidence.hear("It broke", is_start=True)
    evidence.take_back("It broke", "Internal error: It broke")
    assert evidence.answered


@pytest.mark.parametrize(
    ("agent", "update", "complaint"),
    [
        ("grok", {"sessionUpdate": "retry_state", "reason": "API error (status 500)"}, "API error (status 500)"),
        ("grok", {"sessionUpdate": "other", "reason": "API error (status 500)"}, None),
        (
            "codex-acp",
            {"_meta": {"codex": {"error": {"message": "Reconnecting", "additionalDetails": "busy"}}}},
            "Reconnecting: busy",
        ),
        ("codex-acp", {"_meta": {"codex": {"threadStatus": {}}}}, None),
        ("codex-acp", {"_meta": {"codex": 5}}, None),
        ("codex-acp", {"_meta": None}, None),
        ("codex-acp", {}, None),
    ],
)
def test_trouble_told_beside_the_messages(agent: str, update: dict[str, Json], complaint: str | None) -> None:
    assert complaint_in(update, quirks_of(agent)) == complaint


SAID = Evidence(said=True)
NOTHING = Evidence()
FAILED = Evidence(complaint="Error: HTTP 500", failed_last=True)
BROKE_OFF = Evidence(said=True, complaint="Error: HTTP 500", failed_last=True)


@pytest.mark.parametrize(
    ("ending", "turn", "before", "outcome", "detail"),
    [
        (Answered("end_turn"), SAID, False, AgentOutcome.COMPLETED, None),
        (Answered("end_turn"), Evidence(tool_calls=1), False, AgentOutcome.COMPLETED, None),
        (Answered("end_turn"), Evidence(output_tokens=1), False, AgentOutcome.COMPLETED, None),
        (Answered("end_turn"), NOTHING, True, AgentOutcome.GAVE_UP, "the model gave no answer to this prompt"),
        (Answered("end_turn"), FAILED, True, AgentOutcome.GAVE_UP, "Error: HTTP 500"),
        (Answered("end_turn"), BROKE_OFF, False, AgentOutcome.GAVE_UP, "Error: HTTP 500"),
        (Answered("paused"), SAID, False, AgentOutcome.COMPLETED, "stopped with paused"),
        (Answered("cancelled"), SAID, False, AgentOutcome.GAVE_UP, "stopped with cancelled"),
        (Answered("refusal"), NOTHING, False, AgentOutcome.GAVE_UP, "stopped with refusal"),
        (Answered("max_tokens"), NOTHING, False, AgentOutcome.GAVE_UP, "stopped with max_tokens"),
        (Failed(-32603, "too long"), SAID, False, AgentOutcome.GAVE_UP, "too long"),
        (Failed(-32603, "too long"), NOTHING, True, AgentOutcome.GAVE_UP, "too long"),
        (Died("exited with status 1"), SAID, False, AgentOutcome.CRASHED, "exited with status 1"),
        (TimedOut("idle_timeout", 5, "idle for 5 s"), SAID, False, AgentOutcome.TIMED_OUT, "idle for 5 s"),
        (TimedOut("wall_clock_timeout", 5, "over"), NOTHING, True, AgentOutcome.TIMED_OUT, "over"),
    ],
)
def test_an_end_with_an_answer_is_a_result(
    ending: Ending, turn: Evidence, before: bool, outcome: AgentOutcome, detail: str | None
) -> None:
    assert conclude(ending, turn, answered_before=before, agent="x") == (outcome, detail)


@pytest.mark.parametrize(
    ("ending", "turn", "error", "told"),
    [
        (Answered("end_turn"), NOTHING, ProviderError, "x ended its turn without an answer of its model"),
        (Answered("end_turn"), FAILED, ProviderError, "Error: HTTP 500"),
        (Answered("cancelled"), NOTHING, ProviderError, "without an answer"),
        (Failed(401, "denied"), NOTHING, ProviderError, "denied (code 401)"),
        (Died("exited with status 1"), NOTHING, AgentError, "x exited with status 1 before its model answered"),
        (TimedOut("wall_clock_timeout", 5, "over"), NOTHING, ProviderError, "never answered within 5 s"),
        (TimedOut("idle_timeout", 5, "over"), FAILED, ProviderError, "within 5 s: Error: HTTP 500"),
    ],
)
def test_an_end_without_an_answer_is_an_error(
    ending: Ending, turn: Evidence, error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as caught:
        conclude(ending, turn, answered_before=False, agent="x")
    assert told in str(caught.value)


@pytest.mark.parametrize("ending", [Answered("end_turn"), Failed(1, "no"), TimedOut("wall_clock_timeout", 5, "over")])
def test_the_error_names_the_model(ending: Ending) -> None:
    with pytest.raises(ProviderError, match="model mock-model"):
        conclude(ending, NOTHING, answered_before=False, agent="x", model="mock-model")


@pytest.mark.parametrize(
    ("complaint", "advice", "retryable"),
    [
        ("HTTP 401", "check the API key or login that it uses", False),
        ("403 Forbidden", "check the API key or login that it uses", False),
        ("Incorrect API key provided", "check the API key or login that it uses", False),
        ("429 insufficient_quota", "the account has nothing left", False),
        ("429 Too Many Requests", "lower --bf-concurrency", True),
        ("404 page", "check the model id", False),
        ("The model gpt-0 does not exist", "check the model id", False),
        ("529 overloaded", "try again later", True),
        ("Retrying (attempt 1/3)", "try again later", True),
        ("something odd", "look at its log", False),
        (None, "look at its log", False),
    ],
)
def test_the_advice_fits_the_complaint(complaint: str | None, advice: str, retryable: bool) -> None:
    error = provider_error(complaint, "no answer")
    assert advice in (error.advice or "")
    assert error.retryable is retryable
    assert error.message == (f"no answer: {complaint}" if complaint else "no answer")


@pytest.mark.parametrize(
    ("traffic", "sign", "idle", "at"),
    [
        (100.0, None, None, None),
        (100.0, 90.0, None, None),
        (100.0, None, 10.0, 110.0),
        (100.0, 100.0, 10.0, 130.0),
        (120.0, 100.0, 10.0, 130.0),
        (129.0, 100.0, 10.0, 139.0),
        (120.0, 115.0, 10.0, 145.0),
    ],
)
def test_a_pending_tool_call_puts_idleness_off_for_a_while(
    traffic: float, sign: float | None, idle: float | None, at: float | None
) -> None:
    assert idle_at(traffic, sign, idle) == at


@pytest.mark.parametrize("text", ["412", "404.", "500 lines were changed.", "429 of 500 rows are valid"])
def test_a_number_is_no_failure(text: str) -> None:
    assert not is_failure(text)


@pytest.mark.parametrize(
    "text", ["404 Not Found", "429 Too Many Requests", '401 {"error": "x"}', "503: API overloaded"]
)
def test_a_status_with_its_text_is_one(text: str) -> None:
    assert is_failure(text)


def test_an_agent_that_tries_again_until_it_gives_up_has_given_up() -> None:
    turn = Evidence(quirks=Quirks(notices=(r"retrying \(attempt", "retry finished")))
    turn.saw_tool_call()
    for text in ("Retrying (attempt 1/3)...", "Retry finished, resuming."):
        assert turn.hear(text, is_start=True)
    # Its own file has the status.
    turn.report_failure("429: limited")
    ending = conclude(Answered("end_turn"), turn, answered_before=False, agent="pi")
    assert ending == (AgentOutcome.GAVE_UP, "429: limited")
    turn.hear("Here it is.", is_start=True)
    assert conclude(Answered("end_turn"), turn, answered_before=False, agent="pi")[0] is AgentOutcome.COMPLETED
