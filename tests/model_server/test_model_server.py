"""The scripted model server, asked as the providers' own clients ask."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from project import wait_for

from model_server import (
    Call,
    Fail,
    Garbage,
    ModelServer,
    Reset,
    Run,
    Say,
    Slow,
    Stall,
    Together,
    Usage,
    Write,
)
from model_server.clients import CLIENTS, SHELL, Client, send

Connect = Callable[..., Client]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(params=[(wire, stream) for wire in CLIENTS for stream in (True, False)], ids=str)
def connect(request: pytest.FixtureRequest, server: ModelServer) -> Connect:
    """Give a test the function that opens a conversation, in each protocol, streaming and not."""
    wire, stream = request.param
    return lambda **more: CLIENTS[wire](server.url, stream=stream, **more)


def test_a_script_is_played_in_order_and_then_the_model_is_done(server: ModelServer, connect: Connect) -> None:
    server.script("hello.txt", Write("/app/hello.txt", "hi\n"), Run("cat /app/hello.txt"), Say("It says hi."))
    client = connect()
    first = client.ask("Make hello.txt, please.")
    assert first.calls == [("write_file", {"file_path": "/app/hello.txt", "content": "hi\n"})]
    second = client.answer(first)
    assert second.calls == [("run_shell_command", {"command": "cat /app/hello.txt", "description": "scripted"})]
    third = client.answer(second, "hi")
    assert (third.text, third.calls) == ("It says hi.", [])


def test_a_script_starts_anew_with_each_prompt_and_needs_the_context_it_asks_for(
    server: ModelServer, connect: Connect
) -> None:
    server.script("one", Run("echo 1"), Say("First."))
    server.script("two", Say("You told me about one."), seen="echo 1")
    server.script("two", Say("What is one?"), unseen="echo 1")
    client = connect()
    client.answer(client.ask("Do one."))
    client.history.append(client.said("Now two."))
    assert client.go().text == "You told me about one."
    assert connect().ask("Now two.").text == "What is one?"


def test_words_and_several_calls_come_in_one_answer(server: ModelServer, connect: Connect) -> None:
    server.script("both", Together((Run("a"), Call("unheard_of", {"x": 1})), "Let me see."), Say("Seen."))
    client = connect()
    heard = client.ask("Do both.")
    assert heard.text == "Let me see."
    assert [name for name, _ in heard.calls] == ["run_shell_command", "unheard_of"]
    assert client.answer(heard).text == "Seen."


def test_usage_is_told(server: ModelServer, connect: Connect) -> None:
    server.usage = Usage(input=10, output=3, cached=4)
    assert connect().ask("Hello.").tokens == (6, 3, 4)


def test_a_prompt_may_bring_its_own_script(connect: Connect) -> None:
    client = connect()
    heard = client.ask("Please.\nRUN: echo a | tee b\nWRITE: /app/c | d e\nSAY: As you wish.\n")
    heard_next = client.answer(heard)
    assert [given.get("command", given.get("content")) for _, given in heard.calls + heard_next.calls] == [
        "echo a | tee b",
        "d e\n",
    ]
    assert client.answer(heard_next).text == "As you wish."


@pytest.mark.parametrize("status", [401, 429, 500])
def test_errors_have_the_shape_of_the_provider(server: ModelServer, connect: Connect, status: int) -> None:
    server.script("fail", Fail(status, message="no luck", retry_after=2))
    client = connect()
    client.history.append(client.said("fail"))
    got, data, headers = client.post()
    assert (got, headers["retry-after"]) == (status, "2")
    assert json.loads(data)["error"]["message"] == "no luck"


def test_limited_trouble_ends_and_the_script_goes_on(server: ModelServer, connect: Connect) -> None:
    server.script("unlucky", Fail(500, times=2), Run("x"), Fail(429, times=1), Say("At last."))
    client = connect()
    client.history.append(client.said("unlucky"))
    assert [client.post()[0] for _ in range(2)] == [500, 500]
    heard = client.go()
    assert [name for name, _ in heard.calls] == ["run_shell_command"]
    client.history += client.results(heard, "ok")
    assert client.post()[0] == 429
    assert client.go().text == "At last."


def test_a_wrong_key_is_refused(server: ModelServer, connect: Connect) -> None:
    server.keys = {"sk-good"}
    assert connect(key="sk-bad").post()[0] == 401
    assert connect(key="sk-good").ask("Hello.").text == "Done."


def test_an_unknown_model_is_refused_by_name(server: ModelServer, connect: Connect) -> None:
    server.strict = True
    status, data, _ = connect(model="no-such-model").post()
    assert status == 404
    assert "no-such-model" in json.loads(data)["error"]["message"]


def test_everything_that_came_in_is_remembered(server: ModelServer, connect: Connect) -> None:
    server.script("notes", Run("cat notes"))
    client = connect(key="sk-mine", model="some-model")
    client.answer(client.ask("Read the notes."), "the secret word")
    first, second = server.calls
    assert (first.key, first.model, first.prompt) == ("sk-mine", "some-model", "Read the notes.")
    assert first.tools == ("run_shell_command", "write_file")
    assert (first.saw("the secret word"), second.saw("the secret word")) == (False, True)
    assert second.saw("You are helpful.")
    assert server.prompted("notes") == [first, second]


def test_scripts_are_told_apart_by_key_and_model(server: ModelServer, connect: Connect) -> None:
    server.script("", Say("for a key"), key="sk-1")
    server.script("", Say("for a model"), model="model-1")
    server.script(re.compile(r"^H.*o$"), Say("for a pattern"))
    assert connect(key="sk-1").ask("Hello").text == "for a key"
    assert connect(model="model-1").ask("Hello").text == "for a model"
    assert connect().ask("Hello").text == "for a pattern"
    assert connect().ask("Goodbye").text == "Done."


def test_a_reply_can_be_worked_out_from_the_conversation(server: ModelServer, connect: Connect) -> None:
    server.script("count", lambda conversation: Say(f"{len(conversation.prompts)} prompts"))
    client = connect()
    client.ask("count")
    assert client.ask("count again").text == "2 prompts"


def test_side_calls_get_words_and_use_nothing_up(server: ModelServer, connect: Connect) -> None:
    server.script("work", Fail(500, times=1), Run("x"))
    client = connect()
    client.tools = {}
    assert client.ask("Give a title for: work").text == "Scripted"
    working = connect()
    working.history.append(working.said("work"))
    assert working.post()[0] == 500
    assert not server.requests[0].is_work


def test_many_conversations_do_not_disturb_each_other(server: ModelServer, connect: Connect) -> None:
    server.script("go", Run("a"), Run("b"), Say("c"))
    first, second = connect(), connect()
    one = first.ask("go")
    two = second.ask("go")
    assert one.calls == two.calls
    assert first.answer(first_next := first.answer(one)).text == "c"
    assert second.answer(two).calls == first_next.calls


def test_a_stalled_model_says_nothing_until_the_client_leaves(server: ModelServer, connect: Connect) -> None:
    server.script("hang", Stall())
    client = connect()
    client.history.append(client.said("hang"))
    others = handlers()
    with pytest.raises(TimeoutError):
        client.post(timeout=0.1)
    wait_for(lambda: handlers() <= others, "the end of the connection")


def test_a_reset_connection_has_no_answer(server: ModelServer, connect: Connect) -> None:
    server.script("reset", Reset(times=1))
    client = connect()
    client.history.append(client.said("reset"))
    with pytest.raises((ConnectionResetError, urllib.error.URLError, http.client.RemoteDisconnected)):
        client.post()
    assert client.go().text == "Done."


def test_garbage_is_a_success_without_an_answer(server: ModelServer, connect: Connect) -> None:
    server.script("garbage", Garbage())
    client = connect()
    client.history.append(client.said("garbage"))
    status, data, _ = client.post()
    assert status == 200
    with pytest.raises(ValueError):
        client.payloads(data) if client.is_streaming else json.loads(data)


def test_a_slow_answer_is_whole_in_the_end(server: ModelServer, connect: Connect) -> None:
    server.script("slow", Slow(Say("one two three"), seconds=0.001))
    assert connect().ask("slow").text == "one two three"


@pytest.mark.parametrize("wire", CLIENTS)
@pytest.mark.parametrize("trouble", [Stall(begun=True), Reset(begun=True)], ids=["stall", "reset"])
def test_a_stream_can_break_off_after_it_has_begun(server: ModelServer, wire: str, trouble: Stall | Reset) -> None:
    server.script("break", trouble)
    client = CLIENTS[wire](server.url, stream=True)
    client.history.append(client.said("break"))
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=0.1)
    connection.request("POST", client.path(), json.dumps(client.body()), client.headers())
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.read1().startswith((b"data:", b"event:"))
    with pytest.raises((TimeoutError, ConnectionResetError, http.client.IncompleteRead)):
        answer.read()
    connection.close()


@pytest.mark.parametrize(
    ("path", "headers", "ids"),
    [
        ("/v1/models", {}, lambda got: [one["id"] for one in got["data"]]),
        ("/v1/models", {"anthropic-version": "2023-06-01"}, lambda got: [one["id"] for one in got["data"]]),
        (
            "/v1/models",
            {"x-goog-api-key": "k"},
            lambda got: [one["name"].removeprefix("models/") for one in got["models"]],
        ),
    ],
    ids=["openai", "anthropic", "gemini"],
)
def test_models_are_listed(server: ModelServer, path: str, headers: dict[str, str], ids: Callable) -> None:
    server.models = ["a", "b"]
    assert ids(json.loads(send(server.url + path, None, headers)[1])) == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "key"),
    [("/v1/messages/count_tokens", "input_tokens"), ("/v1beta/models/m:countTokens", "totalTokens")],
)
def test_tokens_are_counted(server: ModelServer, path: str, key: str) -> None:
    assert json.loads(send(server.url + path, {"messages": []})[1])[key] == server.usage.input


@pytest.mark.parametrize(
    ("wire", "wish"),
    [
        (
            "gemini",
            lambda schema: {"generationConfig": {"responseMimeType": "application/json", "responseSchema": schema}},
        ),
        ("responses", lambda schema: {"text": {"format": {"type": "json_schema", "schema": schema}}}),
        ("chat", lambda schema: {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}),
        ("anthropic", lambda schema: {"output_config": {"format": {"type": "json_schema", "schema": schema}}}),
    ],
)
def test_an_answer_that_has_to_be_json_is(server: ModelServer, wire: str, wish: Callable) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}, "speaker": {"enum": ["user", "model"]}}}
    client = CLIENTS[wire](server.url, stream=False)
    client.tools = {}
    client.history.append(client.said("A title, please."))
    heard = client.understand_whole(
        json.loads(send(server.url + client.path(), {**client.body(), **wish(schema)}, client.headers())[1])
    )
    assert json.loads(heard.text) == {"title": "scripted", "speaker": "user"}


@pytest.mark.parametrize(
    ("tools", "name", "arguments"),
    [
        ({"Bash": SHELL}, "Bash", {"command": "ls", "description": "scripted"}),
        ({"read": SHELL, "exec_command": {"properties": {"cmd": {"type": "string"}}}}, "exec_command", {"cmd": "ls"}),
        (
            {"shell": {"properties": {"command": {"type": "array", "items": {"type": "string"}}}}},
            "shell",
            {"command": ["bash", "-lc", "ls"]},
        ),
        (
            {
                "terminal": {
                    "properties": {
                        "command": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                        "security_risk": {"type": "string", "enum": ["HIGH", "LOW"]},
                        "is_input": {"type": "boolean"},
                    },
                    "required": ["command", "security_risk", "is_input"],
                }
            },
            "terminal",
            {"command": "ls", "security_risk": "LOW", "is_input": False},
        ),
    ],
    ids=["named", "other-key", "argv", "required"],
)
def test_an_intent_becomes_a_call_of_what_is_offered(
    server: ModelServer, tools: dict[str, object], name: str, arguments: dict[str, object]
) -> None:
    server.script("list", Run("ls"))
    client = CLIENTS["chat"](server.url, stream=False)
    client.tools = tools
    assert client.ask("list").calls == [(name, arguments)]


def test_without_a_tool_for_files_the_shell_writes_them(server: ModelServer, tmp_path: Path) -> None:
    target = tmp_path / "new" / "it's.txt"
    server.script("write", Write(str(target), "don't\n"))
    client = CLIENTS["chat"](server.url, stream=False)
    client.tools = {"bash": SHELL}
    ((_, given),) = client.ask("write").calls
    subprocess.run(["sh", "-c", given["command"]], check=True)
    assert target.read_text() == "don't\n"


def test_no_thread_is_left_when_the_server_closes() -> None:
    others = handlers()
    with ModelServer() as server:
        server.script("hang", Stall())
        client = CLIENTS["chat"](server.url, stream=True)
        client.history.append(client.said("hang"))
        asking = threading.Thread(target=leave_with_an_error, args=(client,))
        asking.start()
        wait_for(lambda: server.calls, "the request")
    asking.join(10)
    wait_for(lambda: handlers() <= others, "the end of all threads")


def test_it_runs_as_a_process_from_a_file(tmp_path: Path) -> None:
    script = {
        "models": ["model-a"],
        "strict": True,
        "keys": ["sk-file"],
        "scripts": [
            {
                "prompt": "go",
                "replies": [
                    {"fail": 429, "times": 1},
                    {"together": [{"run": "a"}, {"write": ["/b", "c"]}, {"call": "d", "arguments": {"e": 1}}]},
                    {"slow": {"say": "Done at last."}, "seconds": 0.001},
                ],
            },
            {"prompt": "garbage", "replies": [{"garbage": True}]},
        ],
    }
    (tmp_path / "script.json").write_text(json.dumps(script))
    arguments = ["--script", str(tmp_path / "script.json"), "--record", str(tmp_path / "requests.jsonl")]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-m", "model_server", *arguments],
        env=here,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        client = CLIENTS["chat"](process.stdout.readline().strip(), stream=True, key="sk-file", model="model-a")
        client.history.append(client.said("go"))
        assert client.post()[0] == 429
        heard = client.go()
        assert [name for name, _ in heard.calls] == ["run_shell_command", "write_file", "d"]
        assert client.answer(heard).text == "Done at last."
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    recorded = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert [(one["key"], one["model"]) for one in recorded] == [("sk-file", "model-a")] * 3


def leave_with_an_error(client: Client) -> None:
    """Ask and get no answer."""
    with pytest.raises(OSError):
        client.post()


def handlers() -> set[threading.Thread]:
    """Return the threads that serve a connection, those of other servers in this process among them."""
    return {thread for thread in threading.enumerate() if "process_request_thread" in thread.name}
