"""An ACP agent for the tests that does one thing wrong, named by its first argument. Standard library only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

Request = dict
BEHAVIOURS: dict[str, Callable[[Request], None]] = {}
ARGUMENT = sys.argv[2] if len(sys.argv) > 2 else ""


def raw(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def line(message: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def send(**message: object) -> None:
    raw(line(message))


def update(kind: str, /, **rest: object) -> bytes:
    return line({"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": kind, **rest}}})


def chunk(text: str, kind: str = "agent_message_chunk") -> bytes:
    return update(kind, content={"type": "text", "text": text})


def answer(request: Request, result: object) -> None:
    send(id=request["id"], result=result)


def done(request: Request, reason: object = "end_turn", **rest: object) -> None:
    answer(request, {"stopReason": reason, **rest})


def say(text: str) -> None:
    raw(chunk(text))


def read() -> Request:
    text = sys.stdin.readline()
    if not text:
        sys.exit(0)
    return json.loads(text)


def ask(method: str, params: object, number: object = 0) -> Request:
    send(id=number, method=method, params=params)
    return read()


def permission(*kinds: str, call: str = "call") -> Request:
    options = [{"optionId": f"id-{kind}", "name": kind, "kind": kind} for kind in kinds]
    params = {
        "sessionId": "s",
        "options": options,
        "toolCall": {"toolCallId": call, "title": "Run it", "kind": "execute"},
    }
    return ask("session/request_permission", params)


def hang() -> None:
    while True:
        time.sleep(1000)


def behaviour(function: Callable[[Request], None]) -> Callable[[Request], None]:
    BEHAVIOURS[function.__name__] = function
    return function


# What it may print between messages: the noise is the second argument, in hexadecimal.


@behaviour
def noise(request: Request) -> None:
    raw(bytes.fromhex(ARGUMENT))
    say("do")
    raw(bytes.fromhex(ARGUMENT))
    say("ne")
    done(request)


@behaviour
def glued(request: Request) -> None:
    raw(
        b"> "
        + chunk("do").strip()
        + chunk("ne").strip()
        + line({"id": request["id"], "result": {"stopReason": "end_turn"}})
    )


@behaviour
def in_single_bytes(request: Request) -> None:
    for byte in chunk("done é"):
        raw(bytes([byte]))
    done(request)


@behaviour
def without_last_line_end(request: Request) -> None:
    say("done")
    raw(line({"id": request["id"], "result": {"stopReason": "end_turn"}}).strip())
    os.close(1)
    hang()


@behaviour
def huge_line(request: Request) -> None:
    raw(b'{"jsonrpc":"2.0","method":"session/update","params":{"text":"')
    for _ in range(100):
        raw(b"x" * 1_000_000)
    raw(b'"}}\n')
    say("done")
    done(request)


@behaviour
def nests_deeply(request: Request) -> None:
    depth = int(ARGUMENT)
    deep = b"[" * depth + b"]" * depth
    for kind, key in (("tool_call", b"rawInput"), ("plan", b"entries"), ("agent_message_chunk", b"content")):
        head = update(kind, toolCallId="deep", title="deep").strip()[:-3]
        raw(head + b', "' + key + b'": ' + deep + b"}}}\n")
    say("done")
    done(request)


@behaviour
def stdout_flood(request: Request) -> None:
    for _ in range(100):
        raw(b"log line\n" * 10_000)
    say("done")
    done(request)


@behaviour
def stderr_flood(request: Request) -> None:
    for _ in range(40):
        sys.stderr.write("log line\n" * 10_000)
    sys.stderr.flush()
    say("done")
    done(request)


@behaviour
def request_flood(request: Request) -> None:
    for number in range(2000):
        send(id=number, method="vendor/ask", params={})
    refused = [read()["error"]["code"] for _ in range(2000)]
    say(f"{len(refused)} of {set(refused)}")
    done(request)


# Updates.


@behaviour
def update_before_call(request: Request) -> None:
    raw(update("tool_call_update", toolCallId="a", status="in_progress", title="Run"))
    raw(update("tool_call", toolCallId="a", kind="execute", rawInput={"command": "ls"}))
    raw(update("tool_call_update", toolCallId="a", status="completed"))
    done(request)


@behaviour
def call_without_end(request: Request) -> None:
    raw(update("tool_call", toolCallId="a", status="in_progress", title="Run"))
    done(request)


@behaviour
def updates_after_the_answer(request: Request) -> None:
    late = chunk("done") + update("session_info_update", title="x") + update("tool_call_update", toolCallId="a")
    raw(line({"id": request["id"], "result": {"stopReason": "end_turn"}}) + late)


@behaviour
def only_other_things(request: Request) -> None:
    raw(update("plan", entries=[{"content": "Think", "status": "pending", "priority": "low"}]))
    raw(update("agent_message_chunk", content={"type": "image", "data": "aGk=", "mimeType": "image/png"}))
    done(request)


# Ways to end.


@behaviour
def silent(request: Request) -> None:
    done(request)


@behaviour
def silent_with_usage(request: Request) -> None:
    done(request, usage={"inputTokens": 10, "outputTokens": 3, "totalTokens": 13})


@behaviour
def stops(request: Request) -> None:
    say("something")
    done(request, ARGUMENT)


@behaviour
def null_answer(request: Request) -> None:
    say("something")
    answer(request, None)


@behaviour
def says_and_ends(request: Request) -> None:
    say(ARGUMENT)
    done(request)


@behaviour
def error(request: Request) -> None:
    send(id=request["id"], error=json.loads(ARGUMENT))


@behaviour
def error_later(request: Request) -> None:
    say("something")
    send(id=request["id"], error={"code": -32603, "message": "context too long"})


@behaviour
def good_then_failing(request: Request) -> None:
    if "first" in str(request["params"]):
        say("done")
    else:
        say("Error: Failed to get response from the AI model; Last error: 500")
    done(request)


@behaviour
def dies(request: Request) -> None:
    sys.stderr.write("warming up\nout of memory\n")
    sys.stderr.flush()
    if ARGUMENT:
        say(ARGUMENT)
    os._exit(3)


@behaviour
def is_killed(request: Request) -> None:
    say("something")
    os.kill(os.getpid(), signal.SIGKILL)


@behaviour
def closes_its_output(request: Request) -> None:
    say("something")
    os.close(1)
    hang()


@behaviour
def hangs(request: Request) -> None:
    if ARGUMENT:
        say(ARGUMENT)
    hang()


@behaviour
def hangs_with_children(request: Request) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    say(str(child.pid))
    hang()


@behaviour
def hangs_in_a_call(request: Request) -> None:
    raw(update("tool_call", toolCallId="slow", status="in_progress", title="make"))
    hang()


@behaviour
def can_be_cancelled(request: Request) -> None:
    say("something")
    assert read()["method"] == "session/cancel"
    done(request, "cancelled", usage={"inputTokens": 7, "outputTokens": 5})


@behaviour
def asks_while_cancelled(request: Request) -> None:
    say("something")
    assert read()["method"] == "session/cancel"
    raw(chunk(f" {permission('allow_once')['result']['outcome']['outcome']}"))
    done(request, "cancelled")


@behaviour
def floods_for_ever(request: Request) -> None:
    while True:
        raw(chunk("more and more of it ") * 100)


@behaviour
def reads_nothing(request: Request) -> None:
    hang()


# Requests to the client.


@behaviour
def asks_permission(request: Request) -> None:
    got = permission(*ARGUMENT.split(",")) if ARGUMENT else permission()
    say(json.dumps(got["result"]["outcome"], sort_keys=True))
    done(request)


@behaviour
def asks_and_dies(request: Request) -> None:
    permission("allow_once")
    os._exit(1)


@behaviour
def asks_with_broken_parameters(request: Request) -> None:
    got = ask("session/request_permission", json.loads(ARGUMENT))
    say(json.dumps(got["result"]["outcome"], sort_keys=True))
    done(request)


@behaviour
def asks_for(request: Request) -> None:
    say(str(ask(ARGUMENT, {"path": "/etc/passwd"}, "text-id")["error"]["code"]))
    done(request)


# Handshakes.


def initialize(request: Request) -> None:
    if NAME == "exits_at_once":
        sys.stderr.write("error: no such option --acp\n")
        sys.exit(2)
    if NAME == "never_introduces_itself":
        sys.stderr.write("waiting for a login\n")
        sys.stderr.flush()
        hang()
    version = 2 if NAME == "speaks_another_version" else 1
    methods = [{"id": "api-key", "name": "API key"}]
    info = {"name": "misbehaving", "version": "1.2"}
    answer(request, {"protocolVersion": version, "authMethods": methods, "agentInfo": info})


def new_session(request: Request) -> None:
    if NAME == "never_begins":
        hang()
    if NAME == "wants_a_login":
        send(id=request["id"], error={"code": -32000, "message": "Authentication required: run login"})
    elif NAME == "cannot_begin":
        send(id=request["id"], error={"code": -32603, "message": "no space left"})
    elif NAME == "begins_without_id":
        answer(request, {})
    else:
        answer(request, {"sessionId": "s"})


NAME = sys.argv[1]


def main() -> None:
    while True:
        request = read()
        if request["method"] == "initialize":
            initialize(request)
        elif request["method"] == "session/new":
            new_session(request)
            if NAME == "reads_nothing":
                hang()
        elif request["method"] == "session/prompt":
            BEHAVIOURS[NAME](request)


main()
