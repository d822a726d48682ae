"""What a trajectory is made of: one JSON object per event."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Event: TypeAlias = dict[str, Json]
Emit: TypeAlias = Callable[[Event], None]
"""Append one event to the trajectory on disk."""
