"""The official SDKs of three wire protocols, each behind the same small face; imported when a model is asked."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pytest_benchflow.providers.ask import (
    Connection,
    MissingSdk,
    ModelEndpoint,
    ModelReply,
    Option,
    Question,
    TokenUse,
    UnusableAnswer,
)

if TYPE_CHECKING:
    from pytest_benchflow.providers.providers import WireProtocol

PACKAGES: Mapping[str, tuple[str, str]] = {
    "anthropic-messages": ("anthropic", "anthropic"),
    "openai-completions": ("openai", "openai"),
    "gemini": ("google.genai", "google-genai"),
}
"""Module and distribution of each protocol."""


def require_package(protocol: WireProtocol) -> None:
    """Raise an error that names the installation if the protocol's SDK is not here."""
    module, distribution = PACKAGES[protocol]
    try:
        is_there = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        is_there = False
    if not is_there:
        raise MissingSdk(
            f"the package {distribution} is not installed", advice="run: pip install 'pytest-benchflow[judge]'"
        )


def open_connection(endpoint: ModelEndpoint) -> Connection:
    """Return a connection to an endpoint."""
    require_package(endpoint.protocol)
    opened: Mapping[str, Callable[[ModelEndpoint], Connection]] = {
        "anthropic-messages": _Anthropic,
        "openai-completions": _OpenAI,
        "gemini": _Gemini,
    }
    return opened[endpoint.protocol](endpoint)


class _Anthropic:
    def __init__(self, endpoint: ModelEndpoint) -> None:
        import anthropic

        self._model = endpoint.model
        self._client = anthropic.AsyncAnthropic(api_key=endpoint.api_key, base_url=endpoint.base_url, max_retries=0)
        self._client.auth_token = None  # one of the environment's would go to whatever server is asked

    async def send(self, question: Question, options: frozenset[Option], timeout_sec: float) -> ModelReply:
        """Create a message."""
        from anthropic.types import Message

        body: dict[str, object] = {
            "model": self._model,
            "max_tokens": question.max_tokens,
            "system": question.system,
            "messages": _turns(question, "assistant"),
        }
        if "temperature" in options and question.temperature is not None:
            body["temperature"] = question.temperature
        if "schema" in options and question.schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": question.schema}}
        # Not `messages.create`: it does not know the temperature any more, which older models still take, and warns of
        # models that are to be retired, which ends the judge where warnings are errors.
        message = await self._client.post("/v1/messages", cast_to=Message, body=body, options={"timeout": timeout_sec})
        blocks, usage = _field(message, "content"), _field(message, "usage")
        if not isinstance(blocks, list):
            raise UnusableAnswer("the answer is not a message")
        text = "".join(_text(block, "text") for block in blocks if _field(block, "type") == "text")
        cached, stop = _count(usage, "cache_read_input_tokens"), _field(message, "stop_reason")
        read = _count(usage, "input_tokens") + cached + _count(usage, "cache_creation_input_tokens")
        return ModelReply(
            text,
            _name(message, "model"),
            TokenUse(read, _count(usage, "output_tokens"), cached),
            "refused" if stop == "refusal" else "cut" if stop in ("max_tokens", _FULL) else "complete",
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()


_FULL = "model_context_window_exceeded"


class _OpenAI:
    def __init__(self, endpoint: ModelEndpoint) -> None:
        import openai

        self._model = endpoint.model
        self._client = openai.AsyncOpenAI(api_key=endpoint.api_key, base_url=endpoint.base_url, max_retries=0)
        if "openai" not in endpoint.provider:
            # Of the environment's account, and nothing for others.
            self._client.organization = self._client.project = None

    async def send(self, question: Question, options: frozenset[Option], timeout_sec: float) -> ModelReply:
        """Create a chat completion."""
        extra: dict[str, object] = {}
        if "temperature" in options and question.temperature is not None:
            extra["temperature"] = question.temperature
        if "schema" in options and question.schema is not None:
            form = {"name": "answer", "strict": True, "schema": question.schema}
            extra["response_format"] = {"type": "json_schema", "json_schema": form}
        completion = await self._client.chat.completions.create(
            model=self._model,
            messages=[{"role": "system", "content": question.system}, *_turns(question, "assistant")],
            extra_body=extra,
            timeout=timeout_sec,
        )
        choices, usage = _field(completion, "choices"), _field(completion, "usage")
        if not isinstance(choices, list) or not choices:
            raise UnusableAnswer("the answer is not a completion")
        message, reason = _field(choices[0], "message"), _field(choices[0], "finish_reason")
        refusal = _field(message, "refusal")
        refused = bool(refusal) or reason == "content_filter"
        return ModelReply(
            _text(message, "content"),
            _name(completion, "model"),
            TokenUse(
                _count(usage, "prompt_tokens"),
                _count(usage, "completion_tokens"),
                _count(_field(usage, "prompt_tokens_details"), "cached_tokens"),
            ),
            "refused" if refused else "cut" if reason == "length" else "complete",
            str(refusal) if refusal else None,
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()


class _Gemini:
    def __init__(self, endpoint: ModelEndpoint) -> None:
        from google import genai

        options = {"base_url": endpoint.base_url, "retry_options": {"attempts": 1}}
        self._model = endpoint.model
        self._client = genai.Client(api_key=endpoint.api_key, vertexai=False, http_options=options)

    async def send(self, question: Question, options: frozenset[Option], timeout_sec: float) -> ModelReply:
        """Generate content."""
        config: dict[str, object] = {
            "system_instruction": question.system,
            "automatic_function_calling": {"disable": True},
            "http_options": {"timeout": int(timeout_sec * 1000)},
        }
        if "temperature" in options and question.temperature is not None:
            config["temperature"] = question.temperature
        if "schema" in options and question.schema is not None:
            config |= {"response_mime_type": "application/json", "response_json_schema": question.schema}
        contents = [{"role": turn["role"], "parts": [{"text": turn["content"]}]} for turn in _turns(question, "model")]
        response = await self._client.aio.models.generate_content(model=self._model, contents=contents, config=config)
        usage, feedback = _field(response, "usage_metadata"), _field(response, "prompt_feedback")
        candidates = _field(response, "candidates")
        blocked = _field(feedback, "block_reason")
        if not candidates and not blocked:
            raise UnusableAnswer("the answer has no candidate")
        first = candidates[0] if isinstance(candidates, list) and candidates else None
        parts = _field(_field(first, "content"), "parts")
        shown = [part for part in parts if not _field(part, "thought")] if isinstance(parts, list) else []
        reason = str(getattr(_field(first, "finish_reason"), "name", None) or "STOP")
        refused = bool(blocked) or reason not in ("STOP", "MAX_TOKENS", "OTHER", "FINISH_REASON_UNSPECIFIED")
        return ModelReply(
            "".join(_text(part, "text") for part in shown),
            _name(response, "model_version"),
            TokenUse(
                _count(usage, "prompt_token_count"),
                _count(usage, "candidates_token_count") + _count(usage, "thoughts_token_count"),
                _count(usage, "cached_content_token_count"),
            ),
            "refused" if refused else "cut" if reason == "MAX_TOKENS" else "complete",
            str(getattr(blocked, "name", blocked)) if blocked else reason if refused else None,
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aio.aclose()
        self._client.close()


def _turns(question: Question, model: str) -> list[dict[str, str]]:
    return [{"role": (model if n % 2 else "user"), "content": text} for n, text in enumerate(question.turns)]


def _field(value: object, name: str) -> object:
    """Return a field of an answer, None if the server left it out or sent something else altogether."""
    return getattr(value, name, None)


def _text(value: object, name: str) -> str:
    text = _field(value, name)
    return text if isinstance(text, str) else ""


def _name(value: object, name: str) -> str | None:
    return _text(value, name) or None


def _count(value: object, name: str) -> int:
    number = _field(value, name)
    return number if isinstance(number, int) and number > 0 else 0
