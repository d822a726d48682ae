"""The product agent × model × scene × trial for one task, and the names its cells carry in node ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
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
    scene: str | None = None


@dataclass(frozen=True, slots=True)
class SceneChoice:
    """One value of the scene axis; one that settles who plays is not multiplied by the agents of the run."""

    name: str
    agent: str | None = None
    model: str | None = None
    trials: int | None = None


def cells(
    agents: Sequence[AgentChoice],
    trials: int,
    takes_model: Callable[[str], bool],
    scenes: Sequence[SceneChoice] = (),
) -> list[Cell]:
    """Return the cells of a task in a fixed order; parts that do not vary are left out of the names."""
    found: list[Cell] = []
    taken: set[str] = set()
    for agent, model, scene in _played(agents, takes_model, scenes):
        repeats = (scene.trials if scene else None) or trials
        for trial in range(1, repeats + 1):
            shown = scene.name if scene and len(scenes) > 1 else None
            parts = [agent, model, shown, str(trial) if repeats > 1 else None]
            name = _distinct(safe_name("/".join(part for part in parts if part)), taken)
            found.append(Cell(agent, model, trial, name, scene.name if scene else None))
    return found


def _played(
    agents: Sequence[AgentChoice], takes_model: Callable[[str], bool], scenes: Sequence[SceneChoice]
) -> Iterator[tuple[str, str | None, SceneChoice | None]]:
    open_scenes: list[SceneChoice | None] = [scene for scene in scenes if scene.agent is None]
    if open_scenes or not scenes:
        for agent in agents:
            for model in agent.models if takes_model(agent.name) else (None,):
                for scene in open_scenes or [None]:
                    yield agent.name, model, scene
    for pinned in scenes:
        if pinned.agent is not None:
            yield pinned.agent, pinned.model, pinned


def safe_name(text: str) -> str:
    """Replace what a node id must not hold: brackets, spaces, @, ::, control characters."""
    return re.sub(":{2,}", ":", _UNSAFE.sub("-", text)).strip(":") or "-"


def _distinct(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    taken.add(candidate)
    return candidate
