"""Anthropic: POST /v1/messages."""

from __future__ import annotations

from collections.abc import Iterator

from model_server.conversation import Conversation, Tool, Turn, compact, mapping, objects, words
from model_server.wire import Answer, Json, arguments, event, fresh_id

ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}

STOPS = {"complete": "end_turn", "cut": "max_tokens", "refused": "refusal"}


class Anthropic:
    """Messages made of content blocks."""

    name = "anthropic"

    def owns(self, path: str) -> bool:
        """Answer for /messages."""
        return path.endswith("/messages")

    def read(self, path: str, body: Json) -> Conversation:
        """Read the blocks; a user's message may hold tool results and words."""
        turns = [Turn("system", words(body.get("system")))] if body.get("system") else []
        for message in objects(body.get("messages")):
            content = message.get("content")
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)
            turns += [turn for block in blocks if (turn := _turn(str(message.get("role")), block)) is not None]
        tools = [Tool(str(tool["name"]), mapping(tool.get("input_schema"))) for tool in objects(body.get("tools"))]
        form = mapping(mapping(body.get("output_config")).get("format")) or mapping(body.get("output_format"))
        return Conversation(
            str(body.get("model")),
            tuple(turns),
            tuple(tools),
            stream=body.get("stream") is True,
            schema=mapping(form.get("schema")) or None,
        )

    def whole(self, answer: Answer) -> Json:
        """Return a message."""
        blocks: list[Json] = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
        for call in answer.calls:
            blocks.append({"type": "tool_use", "id": fresh_id("toolu_"), "name": call.tool, "input": call.arguments})
        return {
            "id": fresh_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": blocks,
            "stop_reason": "tool_use" if answer.calls else STOPS[answer.ending],
            "stop_sequence": None,
            "usage": {
                "input_tokens": answer.usage.input - answer.usage.cached,
                "output_tokens": answer.usage.output,
                "cache_read_input_tokens": answer.usage.cached,
                "cache_creation_input_tokens": 0,
            },
        }

    def stream(self, answer: Answer) -> Iterator[str]:
        """Return the same message block by block."""
        message = self.whole(answer)
        usage, stop = mapping(message["usage"]), message["stop_reason"]
        start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        yield _event("message_start", message=start)
        for index, block in enumerate(objects(message["content"])):
            empty = {**block, **({"text": ""} if block["type"] == "text" else {"input": {}})}
            yield _event("content_block_start", index=index, content_block=empty)
            if block["type"] == "text":
                deltas: list[Json] = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
            else:
                deltas = [{"type": "input_json_delta", "partial_json": arguments(block["input"])}]
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage)
        yield _event("message_stop")

    def error(self, status: int, message: str) -> Json:
        """Return a typed error."""
        kind = ERRORS.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": fresh_id("req_")}


def _turn(role: str, block: Json) -> Turn | None:
    match block.get("type"):
        case "text":
            return Turn("assistant" if role == "assistant" else "user", words(block))
        case "tool_use":
            return Turn("assistant", compact([block.get("name"), block.get("input")]))
        case "tool_result":
            return Turn("tool", words(block.get("content")))
    return None


def _event(kind: str, **data: object) -> str:
    return event({"type": kind, **data}, kind)
