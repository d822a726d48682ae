"""OpenAI chat completions, the protocol most providers share: POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterator

from model_server.conversation import Conversation, Kind, Tool, Turn, compact, mapping, objects, words
from model_server.wire import Answer, Json, arguments, event, fresh_id, now

KINDS: dict[object, Kind] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
ERRORS = {401: "invalid_request_error", 404: "invalid_request_error", 429: "requests"}
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


class Chat:
    """Messages with roles."""

    name = "chat"

    def owns(self, path: str) -> bool:
        """Answer for /chat/completions."""
        return path.endswith("/chat/completions")

    def read(self, path: str, body: Json) -> Conversation:
        """Read the messages."""
        turns = []
        for message in objects(body.get("messages")):
            kind = KINDS.get(message.get("role"), "system")
            text = words(message.get("content"))
            if text or kind == "tool":
                turns.append(Turn(kind, text))
            for call in objects(message.get("tool_calls")):
                function = mapping(call.get("function"))
                turns.append(Turn("assistant", compact([function.get("name"), function.get("arguments")])))
        functions = [mapping(tool.get("function")) for tool in objects(body.get("tools"))]
        form = mapping(mapping(body.get("response_format")).get("json_schema"))
        return Conversation(
            str(body.get("model")),
            tuple(turns),
            tuple(Tool(str(one["name"]), mapping(one.get("parameters"))) for one in functions if "name" in one),
            stream=body.get("stream") is True,
            schema=mapping(form.get("schema")) or None,
        )

    def whole(self, answer: Answer) -> Json:
        """Return a completion."""
        message: dict[str, object] = {"role": "assistant", "content": answer.text or None}
        if answer.calls:
            message["tool_calls"] = _calls(answer)
        if answer.ending == "refused":
            message |= {"content": None, "refusal": answer.text}
        reason = "tool_calls" if answer.calls else "length" if answer.ending == "cut" else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {**_head(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)}

    def stream(self, answer: Answer) -> Iterator[str]:
        """Return the same completion piece by piece, its usage last."""
        head = _head(answer, "chat.completion.chunk")
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in answer.pieces]
        deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(_calls(answer))]
        for delta in deltas:
            yield event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if answer.calls else "stop"}
        yield event({**head, "choices": [end]})
        yield event({**head, "choices": [], "usage": _usage(answer)})
        yield "data: [DONE]\n\n"

    def error(self, status: int, message: str) -> Json:
        """Return an error with a code."""
        kind = ERRORS.get(status, "server_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": CODES.get(status)}}


def _head(answer: Answer, kind: str) -> Json:
    return {"id": fresh_id("chatcmpl-"), "object": kind, "created": now(), "model": answer.model}


def _calls(answer: Answer) -> list[Json]:
    return [
        {
            "id": fresh_id("call_"),
            "type": "function",
            "function": {"name": call.tool, "arguments": arguments(call.arguments)},
        }
        for call in answer.calls
    ]


def _usage(answer: Answer) -> Json:
    used = answer.usage
    return {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
