"""One connection: HTTP in, the model's answer out, or the trouble that the script wants."""

from __future__ import annotations

import gzip
import json
import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

from model_server.conversation import Conversation, compact, mapping
from model_server.intents import NoTool, filler, tool_call
from model_server.replies import (
    Answering,
    As,
    Call,
    Fail,
    Garbage,
    Reply,
    Reset,
    Run,
    Say,
    Slow,
    Stall,
    Together,
    Verbatim,
    Write,
)
from model_server.request import Request
from model_server.scripts import find_cue
from model_server.wire import Answer, Json, Wire
from model_server.wire_anthropic import Anthropic
from model_server.wire_chat import Chat
from model_server.wire_gemini import Gemini
from model_server.wire_responses import Responses

if TYPE_CHECKING:
    from model_server.server import ModelServer

WIRES: tuple[Wire, ...] = (Anthropic(), Responses(), Chat(), Gemini())
COUNTING = ("/count_tokens", ":countTokens")
BESIDE = "Scripted"
"""What the model says when it is asked for a title, or to do something without the tools for it."""


class Handler(BaseHTTPRequestHandler):
    """Answer requests on one connection until the client leaves or the server closes."""

    protocol_version = "HTTP/1.1"
    timeout = 600

    @property
    def model_server(self) -> ModelServer:
        """The server this connection belongs to."""
        return self.server.model_server  # type: ignore[attr-defined, no-any-return]

    def do_GET(self) -> None:
        """Answer with the list of models, or with an empty object."""
        request = self._request({})
        self.model_server.record(request)
        if self.headers.get("Upgrade"):
            self._send(426, {"error": {"message": "this server does no upgrades"}})
            return
        self._send(200, self.model_server.listing(request) or {})

    def do_HEAD(self) -> None:
        """Tell that the server is there."""
        self.model_server.record(self._request({}))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        """Ask the model, if that is what the path means."""
        request = self._request(self._body())
        path = request.path.partition("?")[0]
        wire = next((one for one in WIRES if one.owns(path)), None)
        if wire is None:
            self.model_server.record(request)
            tokens = self.model_server.usage.input
            self._send(200, {"input_tokens": tokens, "totalTokens": tokens} if path.endswith(COUNTING) else {})
            return
        conversation = wire.read(path, request.body)
        server, key = self.model_server, request.key
        cue = find_cue(conversation, server.scripts, key)
        reply = self._refusal(conversation, key) or server.player.reply(cue, conversation, key)
        prompt = cue.prompt if cue else next(reversed(conversation.prompts), None)
        server.record(replace(request, wire=wire.name, conversation=conversation, prompt=prompt, reply=reply))
        self._give(reply, conversation, wire)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: what came in is recorded."""

    def _refusal(self, conversation: Conversation, key: str | None) -> Fail | None:
        """Return what every provider checks before its model is asked."""
        server = self.model_server
        if server.keys is not None and key not in server.keys:
            return Fail(401, message="invalid API key")
        if server.strict and conversation.model not in server.models:
            return Fail(404, message=f"model {conversation.model} not found")
        return None

    def _give(self, reply: Reply, conversation: Conversation, wire: Wire) -> None:
        match reply:
            case Fail():
                self._fail(reply, wire)
            case Stall(begun) | Reset(begun):
                if begun and conversation.stream:
                    self._begin_stream()
                    self._chunk(next(wire.stream(Answer(conversation.model, BESIDE))))
                if isinstance(reply, Stall):
                    self._wait_for_the_end()
                else:
                    self._reset()
            case Garbage():
                self._garbage(streams=conversation.stream)
            case Slow(inner, seconds):
                self._answer(self._answer_for(inner, conversation), conversation, wire, seconds)
            case _:
                self._answer(self._answer_for(reply, conversation), conversation, wire, 0)

    def _answer_for(self, reply: Answering, conversation: Conversation) -> Answer:
        usage, model = self.model_server.usage, conversation.model
        if isinstance(reply, Verbatim):
            return Answer(model, reply.text, usage=usage, ending=reply.ending)
        if isinstance(reply, As):
            return replace(self._answer_for(reply.reply, conversation), model=reply.model)
        if conversation.schema is not None and not conversation.tools:
            return Answer(model, compact(filler({"type": "object", **conversation.schema})), usage=usage)
        match reply:
            case Say(text):
                return Answer(model, text, usage=usage)
            case Run() | Write() | Call():
                intents: tuple[Run | Write | Call, ...] = (reply,)
                text = ""
            case Together(intents, text):
                pass
            case Slow(inner):
                return self._answer_for(inner, conversation)
        try:
            return Answer(model, text, tuple(tool_call(one, conversation.tools) for one in intents), usage)
        except NoTool:
            return Answer(model, BESIDE, usage=usage)

    def _answer(self, answer: Answer, conversation: Conversation, wire: Wire, seconds: float) -> None:
        if not conversation.stream:
            self._pause(seconds)
            self._send(200, wire.whole(answer))
        elif wire.name == "gemini" and "alt=sse" not in self.path:
            self._pause(seconds)
            self._send(200, [wire.whole(answer)])
        else:
            self._stream(wire.stream(answer), seconds)

    def _stream(self, events: Iterator[str], seconds: float) -> None:
        self._begin_stream()
        for piece in events:
            self._pause(seconds)
            self._chunk(piece)
        self.wfile.write(b"0\r\n\r\n")

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _fail(self, failure: Fail, wire: Wire) -> None:
        message = failure.message or f"scripted failure {failure.status}"
        headers = {} if failure.retry_after is None else {"retry-after": f"{failure.retry_after:g}"}
        self._send(failure.status, wire.error(failure.status, message), headers)

    def _garbage(self, *, streams: bool) -> None:
        if streams:
            self._stream(iter(["data: {this is no JSON\n\n", "\x00\x01 nor an event\n\n"]), 0)
        else:
            self._send_bytes(200, b"<html>this is no JSON</html>", "text/html", {})

    def _send(self, status: int, body: Json | list[Json], headers: dict[str, str] | None = None) -> None:
        self._send_bytes(status, compact(body).encode(), "application/json", headers or {})

    def _send_bytes(self, status: int, data: bytes, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _pause(self, seconds: float) -> None:
        if seconds:
            self.model_server.closing.wait(seconds)

    def _wait_for_the_end(self) -> None:
        """Say nothing until the client leaves or the server closes."""
        self.close_connection = True
        while not self.model_server.closing.is_set():
            readable, _, _ = select.select([self.connection], [], [], 0.05)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return

    def _reset(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Closed here: the server would send an orderly end first.
        self.connection.close()

    def _request(self, body: Json) -> Request:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Request(time.time(), self.command, self.path, headers, body)

    def _body(self) -> Json:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            raw = b"".join(self._chunks())
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding", "").lower() == "gzip":
            raw = gzip.decompress(raw)
        try:
            return mapping(json.loads(raw or b"{}"))
        except ValueError:
            return {}

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().partition(b";")[0] or b"0", 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
