"""The product agent × model × trial for one task, and the names its cells carry in node ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_benchflow.settings import AgentChoice

# What pytest, xdist, -k and "run this id again" all take; everything else becomes a dash.
_UNSAFE = re.compile(r"[^\w.+:/-]+")


@dataclass(frozen=True, slots=True)
class Cell:
    """One rollout of a task."""

    agent: str
    model: str | None
    trial: int
    name: str


def cells(agents: Sequence[AgentChoice], trials: int, takes_model: Callable[[str], bool]) -> list[Cell]:
    """Return the cells of a task in a fixed order; parts that do not vary are left out of the names."""
    found: list[Cell] = []
    taken: set[str] = set()
    for agent in agents:
        for model in agent.models if takes_model(agent.name) else (None,):
            for trial in range(1, trials + 1):
                parts = [agent.name, *([model] if model else []), *([str(trial)] if trials > 1 else [])]
                name = _distinct(safe_name("/".join(parts)), taken)
                found.append(Cell(agent.name, model, trial, name))
    return found


def safe_name(text: str) -> str:
    """Replace what a node id must not hold: brackets, spaces, @, ::, control characters."""
    return re.sub(":{2,}", ":", _UNSAFE.sub("-", text)).strip(":") or "-"


def _distinct(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    taken.add(candidate)
    return candidate
