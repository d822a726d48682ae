"""Read foreign JSON without trusting its shape."""

from __future__ import annotations

from pytest_benchflow.events import Json


def as_object(value: Json) -> dict[str, Json]:
    """Return a JSON object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return a JSON array, an empty one for anything else."""
    return value if isinstance(value, list) else []


def as_text(value: Json) -> str | None:
    """Return a string that says something, else None."""
    return value if isinstance(value, str) and value else None


def as_count(value: Json) -> int | None:
    """Return a number of things, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return None
    return int(value)
