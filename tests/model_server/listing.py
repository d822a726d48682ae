"""The list of models, in the shape of whoever is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from model_server.wire import Json


def models_listing(path: str, headers: Mapping[str, str], models: Sequence[str]) -> Json | None:
    """Return the list, or one of its entries, or None if a path asks for neither."""
    parts = [part for part in path.partition("?")[0].split("/") if part]
    if "models" not in parts:
        return None
    is_gemini = "v1beta" in parts or "x-goog-api-key" in headers
    describe = _gemini if is_gemini else _anthropic if "anthropic-version" in headers else _openai
    one = "/".join(parts[parts.index("models") + 1 :])
    if one:
        return describe(one) if one in models else None
    entries = [describe(model) for model in models]
    if describe is _gemini:
        return {"models": entries}
    edges = {"first_id": models[0], "last_id": models[-1]} if models else {}
    return {"object": "list", "data": entries, "has_more": False, **edges}


def _anthropic(model: str) -> Json:
    return {"type": "model", "id": model, "display_name": model, "created_at": "2025-01-01T00:00:00Z"}


def _gemini(model: str) -> Json:
    methods = ["generateContent", "streamGenerateContent", "countTokens"]
    limits = {"inputTokenLimit": 1_000_000, "outputTokenLimit": 65_536}
    return {"name": f"models/{model}", "displayName": model, "supportedGenerationMethods": methods, **limits}


def _openai(model: str) -> Json:
    return {"id": model, "object": "model", "created": 1_735_689_600, "owned_by": "scripted", "context_length": 200_000}
