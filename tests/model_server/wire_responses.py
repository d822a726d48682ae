"""OpenAI responses: POST /v1/responses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from model_server.conversation import Conversation, Tool, Turn, compact, mapping, objects, words
from model_server.wire import Answer, Json, arguments, event, fresh_id, now
from model_server.wire_chat import KINDS, Chat


class Responses:
    """A list of items: messages, calls, outputs."""

    name = "responses"

    def owns(self, path: str) -> bool:
        """Answer for /responses."""
        return path.endswith("/responses")

    def read(self, path: str, body: Json) -> Conversation:
        """Read the items; a plain string is what the user said."""
        turns = [Turn("system", words(body["instructions"]))] if body.get("instructions") else []
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)
        turns += [turn for item in items if (turn := _turn(item)) is not None]
        tools = [
            Tool(str(tool["name"]), mapping(tool.get("parameters")) if tool.get("type") == "function" else None)
            for tool in objects(body.get("tools"))
            if tool.get("type") in ("function", "custom")
        ]
        form = mapping(mapping(body.get("text")).get("format"))
        return Conversation(
            str(body.get("model")),
            tuple(turns),
            tuple(tools),
            stream=body.get("stream") is True,
            schema=mapping(form.get("schema")) or None,
        )

    def whole(self, answer: Answer) -> Json:
        """Return a response."""
        items: list[Json] = []
        if answer.text or not answer.calls:
            part = {"type": "output_text", "text": answer.text, "annotations": []}
            items.append({"type": "message", "id": fresh_id("msg_"), "role": "assistant", "content": [part]})
        for call in answer.calls:
            items.append(
                {
                    "type": "function_call",
                    "id": fresh_id("fc_"),
                    "call_id": fresh_id("call_"),
                    "name": call.tool,
                    "arguments": arguments(call.arguments),
                }
            )
        used = answer.usage
        return {
            "id": fresh_id("resp_"),
            "object": "response",
            "created_at": now(),
            "status": "completed",
            "model": answer.model,
            "output": [{**item, "status": "completed"} for item in items],
            "usage": {
                "input_tokens": used.input,
                "input_tokens_details": {"cached_tokens": used.cached},
                "output_tokens": used.output,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": used.input + used.output,
            },
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
        }

    def stream(self, answer: Answer) -> Iterator[str]:
        """Return the same response item by item."""
        response = self.whole(answer)
        numbers = itertools.count()

        def said(kind: str, **data: object) -> str:
            return event({"type": kind, "sequence_number": next(numbers), **data}, kind)

        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        yield said("response.created", response=begun)
        yield said("response.in_progress", response=begun)
        for index, item in enumerate(objects(response["output"])):
            place = {"item_id": item["id"], "output_index": index}
            empty: Json = {"content": []} if item["type"] == "message" else {"arguments": ""}
            yield said(
                "response.output_item.added", output_index=index, item={**item, **empty, "status": "in_progress"}
            )
            if item["type"] == "message":
                part, within = objects(item["content"])[0], {**place, "content_index": 0}
                yield said("response.content_part.added", **within, part={**part, "text": ""})
                for piece in answer.pieces:
                    yield said("response.output_text.delta", **within, delta=piece)
                yield said("response.output_text.done", **within, text=answer.text)
                yield said("response.content_part.done", **within, part=part)
            else:
                yield said("response.function_call_arguments.delta", **place, delta=item["arguments"])
                yield said("response.function_call_arguments.done", **place, arguments=item["arguments"])
            yield said("response.output_item.done", output_index=index, item=item)
        yield said("response.completed", response=response)

    def error(self, status: int, message: str) -> Json:
        """Return the error that all of this provider's protocols share."""
        return Chat().error(status, message)


def _turn(item: Json) -> Turn | None:
    kind = str(item.get("type", "message"))
    if kind.endswith("_output"):
        return Turn("tool", words(item.get("output")))
    if kind.endswith("_call"):
        return Turn("assistant", compact([item.get("name"), item.get("arguments", item.get("input"))]))
    if kind == "message":
        return Turn(KINDS.get(item.get("role"), "system"), words(item.get("content")))
    return None
