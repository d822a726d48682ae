"""Gemini: POST /v1beta/models/MODEL:generateContent and :streamGenerateContent."""

from __future__ import annotations

from collections.abc import Iterator

from model_server.conversation import Conversation, Tool, Turn, compact, mapping, objects, words
from model_server.wire import Answer, Json, event, fresh_id

STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


class Gemini:
    """Contents made of parts; the model is in the path."""

    name = "gemini"

    def owns(self, path: str) -> bool:
        """Answer for both ways to generate content."""
        return path.endswith((":generateContent", ":streamGenerateContent"))

    def read(self, path: str, body: Json) -> Conversation:
        """Read the parts; function responses are the tools' results."""
        system = words(mapping(body.get("systemInstruction")).get("parts"))
        turns = [Turn("system", system)] if system else []
        for content in objects(body.get("contents")):
            speaker = "assistant" if content.get("role") == "model" else "user"
            turns += [turn for part in objects(content.get("parts")) if (turn := _turn(speaker, part)) is not None]
        declared = [one for tool in objects(body.get("tools")) for one in objects(tool.get("functionDeclarations"))]
        form = mapping(body.get("generationConfig"))
        schema = mapping(form.get("responseJsonSchema")) or mapping(form.get("responseSchema"))
        return Conversation(
            path.rpartition("/")[2].partition(":")[0],
            tuple(turns),
            tuple(Tool(str(one["name"]), _schema(one)) for one in declared),
            stream=path.endswith(":streamGenerateContent"),
            schema=schema or ({} if form.get("responseMimeType") == "application/json" else None),
        )

    def whole(self, answer: Answer) -> Json:
        """Return a response with one candidate."""
        parts: list[Json] = [{"text": answer.text}] if answer.text or not answer.calls else []
        return _response(answer, [*parts, *_calls(answer)], fresh_id("resp"), last=True)

    def stream(self, answer: Answer) -> Iterator[str]:
        """Return the same response in pieces, the last of which has the usage."""
        name = fresh_id("resp")
        parts: list[list[Json]] = [[{"text": piece}] for piece in answer.pieces]
        parts += [_calls(answer)] if answer.calls or not parts else []
        for piece in parts[:-1]:
            yield event(_response(answer, piece, name, last=False))
        yield event(_response(answer, parts[-1] or [{"text": ""}], name, last=True))

    def error(self, status: int, message: str) -> Json:
        """Return an error with the name of its status."""
        return {"error": {"code": status, "message": message, "status": STATUS.get(status, "INTERNAL")}}


def _response(answer: Answer, parts: list[Json], name: str, *, last: bool) -> Json:
    candidate: dict[str, object] = {"content": {"role": "model", "parts": parts}, "index": 0}
    response: dict[str, object] = {"candidates": [candidate], "modelVersion": answer.model, "responseId": name}
    if last:
        candidate["finishReason"] = {"complete": "STOP", "cut": "MAX_TOKENS", "refused": "SAFETY"}[answer.ending]
        response["usageMetadata"] = {
            "promptTokenCount": answer.usage.input,
            "candidatesTokenCount": answer.usage.output,
            "totalTokenCount": answer.usage.input + answer.usage.output,
            "cachedContentTokenCount": answer.usage.cached,
        }
    return response


def _calls(answer: Answer) -> list[Json]:
    return [
        {"functionCall": {"id": fresh_id("call"), "name": call.tool, "args": call.arguments}} for call in answer.calls
    ]


def _schema(declaration: Json) -> Json:
    return mapping(declaration.get("parametersJsonSchema")) or mapping(declaration.get("parameters"))


def _turn(speaker: str, part: Json) -> Turn | None:
    if "functionResponse" in part:
        return Turn("tool", compact(mapping(part["functionResponse"]).get("response")))
    if "functionCall" in part:
        call = mapping(part["functionCall"])
        return Turn("assistant", compact([call.get("name"), call.get("args")]))
    if isinstance(part.get("text"), str):
        return Turn("assistant" if speaker == "assistant" else "user", str(part["text"]))
    return None
