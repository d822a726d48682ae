"""Small clients that ask as the providers' own clients do, and understand just enough of the answers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

SHELL = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "description": {"type": "string"}},
    "required": ["command", "description"],
}
WRITE = {
    "type": "object",
    "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["file_path", "content"],
}
TOOLS = {"run_shell_command": SHELL, "write_file": WRITE}


@dataclass
class Heard:
    """What came back."""

    text: str = ""
    calls: list[tuple[str, object]] = field(default_factory=list)
    tokens: tuple[int, int, int] | None = None
    """Input without what was cached, output, cached."""


def send(
    url: str, body: object | None, headers: Mapping[str, str] | None = None, *, timeout: float = 10
) -> tuple[int, bytes, Mapping[str, str]]:
    """Make one request and return status, body and headers."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


class Client:
    """One conversation in one protocol: every question and every answer stays in it."""

    def __init__(self, url: str, *, stream: bool, key: str = "sk-test", model: str = "scripted-model") -> None:
        self.url, self.is_streaming, self.key, self.model = url, stream, key, model
        self.tools: Mapping[str, object] = TOOLS
        self.history: list[object] = []

    def ask(self, prompt: str) -> Heard:
        """Say something."""
        self.history.append(self.said(prompt))
        return self.go()

    def answer(self, heard: Heard, output: str = "ok") -> Heard:
        """Give the results of the calls that were made."""
        self.history += self.results(heard, output)
        return self.go()

    def go(self) -> Heard:
        """Send the conversation as it is."""
        status, data, _ = self.post()
        assert status == 200, data
        payloads = self.payloads(data) if self.is_streaming else [json.loads(data)]
        return self.understand(payloads) if self.is_streaming else self.understand_whole(payloads[0])

    def post(self, *, timeout: float = 10) -> tuple[int, bytes, Mapping[str, str]]:
        """Make the request and return the bare answer."""
        return send(self.url + self.path(), self.body(), self.headers(), timeout=timeout)

    def payloads(self, data: bytes) -> list[dict[str, object]]:
        """Return the data of server-sent events."""
        lines = [line.removeprefix("data: ") for line in data.decode().splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    def path(self) -> str: ...
    def headers(self) -> dict[str, str]: ...
    def body(self) -> dict[str, object]: ...
    def said(self, prompt: str) -> object: ...
    def results(self, heard: Heard, output: str) -> list[object]: ...
    def understand_whole(self, data: dict) -> Heard: ...
    def understand(self, events: list[dict]) -> Heard: ...


class AnthropicClient(Client):
    def path(self):
        return "/v1/messages?beta=true"

    def headers(self):
        return {"x-api-key": self.key, "anthropic-version": "2023-06-01"}

    def body(self):
        tools = [{"name": name, "description": "", "input_schema": schema} for name, schema in self.tools.items()]
        messages = {"model": self.model, "max_tokens": 100, "messages": self.history, "stream": self.is_streaming}
        return {**messages, "system": [{"type": "text", "text": "You are helpful."}], "tools": tools}

    def said(self, prompt):
        return {"role": "user", "content": [{"type": "text", "text": prompt}]}

    def results(self, heard, output):
        calls = [
            {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": given}
            for n, (name, given) in enumerate(heard.calls)
        ]
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": output} for call in calls]
        reminder = {"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"}
        return [{"role": "assistant", "content": calls}, {"role": "user", "content": [*results, reminder]}]

    def understand_whole(self, data):
        text = "".join(block["text"] for block in data["content"] if block["type"] == "text")
        calls = [(block["name"], block["input"]) for block in data["content"] if block["type"] == "tool_use"]
        assert data["stop_reason"] == ("tool_use" if calls else "end_turn")
        return Heard(text, calls, self.tokens(data["usage"]))

    def understand(self, events):
        assert (events[0]["type"], events[-1]["type"]) == ("message_start", "message_stop")
        blocks = {}
        for event in events:
            if event["type"] == "content_block_start":
                blocks[event["index"]] = [event["content_block"], ""]
            elif event["type"] == "content_block_delta":
                blocks[event["index"]][1] += event["delta"].get("text") or event["delta"].get("partial_json", "")
        text = "".join(piece for block, piece in blocks.values() if block["type"] == "text")
        calls = [(block["name"], json.loads(piece)) for block, piece in blocks.values() if block["type"] == "tool_use"]
        return Heard(text, calls, self.tokens(events[-2]["usage"]))

    def tokens(self, usage):
        return usage["input_tokens"], usage["output_tokens"], usage["cache_read_input_tokens"]


class ChatClient(Client):
    def path(self):
        return "/v1/chat/completions"

    def headers(self):
        return {"Authorization": f"Bearer {self.key}"}

    def body(self):
        tools = [
            {"type": "function", "function": {"name": name, "parameters": schema}}
            for name, schema in self.tools.items()
        ]
        system = {"role": "system", "content": "You are helpful."}
        messages = {"model": self.model, "messages": [system, *self.history], "tools": tools}
        return {**messages, "stream": self.is_streaming, "stream_options": {"include_usage": True}}

    def said(self, prompt):
        return {"role": "user", "content": prompt}

    def results(self, heard, output):
        calls = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for n, (name, given) in enumerate(heard.calls)
        ]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": output} for call in calls]
        return [{"role": "assistant", "content": heard.text or None, "tool_calls": calls}, *results]

    def understand_whole(self, data):
        (choice,) = data["choices"]
        message = choice["message"]
        calls = message.get("tool_calls", [])
        assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
        return Heard(message["content"] or "", [self.call(call) for call in calls], self.tokens(data["usage"]))

    def understand(self, events):
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        text = "".join(delta.get("content") or "" for delta in deltas)
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        assert [call["index"] for call in calls] == list(range(len(calls)))
        return Heard(text, [self.call(call) for call in calls], self.tokens(events[-1]["usage"]))

    def call(self, call):
        return call["function"]["name"], json.loads(call["function"]["arguments"])

    def tokens(self, usage):
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return usage["prompt_tokens"] - cached, usage["completion_tokens"], cached


class ResponsesClient(Client):
    def path(self):
        return "/v1/responses"

    def headers(self):
        return {"Authorization": f"Bearer {self.key}"}

    def body(self):
        tools = [{"type": "function", "name": name, "parameters": schema} for name, schema in self.tools.items()]
        given = {"model": self.model, "instructions": "You are helpful.", "input": self.history}
        return {**given, "tools": [*tools, {"type": "web_search"}], "stream": self.is_streaming, "store": False}

    def said(self, prompt):
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}

    def results(self, heard, output):
        calls = [
            {"type": "function_call", "call_id": f"call_{n}", "name": name, "arguments": json.dumps(given)}
            for n, (name, given) in enumerate(heard.calls)
        ]
        reasoning = {"type": "reasoning", "summary": []}
        outputs = [{"type": "function_call_output", "call_id": one["call_id"], "output": output} for one in calls]
        return [reasoning, *calls, *outputs]

    def understand_whole(self, data):
        assert data["status"] == "completed"
        messages = [item for item in data["output"] if item["type"] == "message"]
        text = "".join(part["text"] for item in messages for part in item["content"])
        calls = [item for item in data["output"] if item["type"] == "function_call"]
        used = data["usage"]
        cached = used["input_tokens_details"]["cached_tokens"]
        tokens = (used["input_tokens"] - cached, used["output_tokens"], cached)
        return Heard(text, [(call["name"], json.loads(call["arguments"])) for call in calls], tokens)

    def understand(self, events):
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[0]["type"] == "response.created"
        heard = self.understand_whole(events[-1]["response"])
        pieces = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert heard.text == "".join(pieces)
        return heard


class GeminiClient(Client):
    def path(self):
        verb = "streamGenerateContent?alt=sse" if self.is_streaming else "generateContent"
        return f"/v1beta/models/{self.model}:{verb}"

    def headers(self):
        return {"x-goog-api-key": self.key}

    def body(self):
        declared = [{"name": name, "parametersJsonSchema": schema} for name, schema in self.tools.items()]
        system = {"parts": [{"text": "You are helpful."}]}
        return {"systemInstruction": system, "contents": self.history, "tools": [{"functionDeclarations": declared}]}

    def said(self, prompt):
        return {"role": "user", "parts": [{"text": prompt}]}

    def results(self, heard, output):
        calls = [{"functionCall": {"name": name, "args": given}} for name, given in heard.calls]
        results = [{"functionResponse": {"name": name, "response": {"output": output}}} for name, _ in heard.calls]
        return [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]

    def understand_whole(self, data):
        return self.understand([data])

    def understand(self, events):
        parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
        assert events[-1]["candidates"][0]["finishReason"] == "STOP"
        calls = [
            (part["functionCall"]["name"], part["functionCall"]["args"]) for part in parts if "functionCall" in part
        ]
        used = events[-1]["usageMetadata"]
        cached = used["cachedContentTokenCount"]
        tokens = (used["promptTokenCount"] - cached, used["candidatesTokenCount"], cached)
        return Heard("".join(part.get("text", "") for part in parts), calls, tokens)


CLIENTS = {"anthropic": AnthropicClient, "chat": ChatClient, "responses": ResponsesClient, "gemini": GeminiClient}
