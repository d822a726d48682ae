"""`Parsed`, a task file that has been read but not yet joined with its directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import TaskConfig
    from .problems import Problem
    from .sources import Source


@dataclass(frozen=True, slots=True)
class Parsed:
    """A task file that is well formed as far as it goes; `config` is None if the problems are too many."""

    source: Source
    config: TaskConfig | None
    problems: list[Problem]
    body: str = ""
