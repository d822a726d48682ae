"""The matrix of a job: every combination of agent, model, scene and trial that runs on a task is a cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# What pytest, xdist, -k and "run this id again" all take; everything else becomes a dash.
_UNSAFE = re.compile(r"[^\w.+:/-]+")


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """One agent of the matrix with the models it is to run; no model means the agent's own default."""

    name: str
    models: tuple[str | None, ...] = (None,)


@dataclass(frozen=True, slots=True)
class SceneChoice:
    """One value of the scene axis; one that settles who plays is not multiplied by the agents of the run."""

    name: str
    agent: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One rollout of a task."""

    agent: str
    model: str | None
    trial: int
    name: str
    scene: str | None = None


def cells(
    agents: Sequence[AgentChoice],
    trials: Sequence[int],
    takes_model: Callable[[str], bool],
    scenes: Sequence[SceneChoice] = (),
) -> list[Cell]:
    """Return the cells of a task in a fixed order; parts that do not vary are left out of the names.

    `trials` says how often each of the scenes is to run, or has one number if there are no scenes.
    """
    matrix: list[Cell] = []
    taken: set[str] = set()
    axis: Sequence[SceneChoice | None] = scenes or [None]
    repeats = dict(zip(axis, trials, strict=True))
    for agent, model, scene in _played(agents, takes_model, scenes):
        for trial in range(1, repeats[scene] + 1):
            shown = scene.name if scene and len(scenes) > 1 else None
            parts = [agent, model, shown, str(trial) if repeats[scene] > 1 else None]
            name = _distinct(safe_name("/".join(part for part in parts if part)), taken)
            matrix.append(Cell(agent, model, trial, name, scene.name if scene else None))
    return matrix


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
    """Replace what a node id must not contain: brackets, spaces, @, ::, control characters."""
    return re.sub(":{2,}", ":", _UNSAFE.sub("-", text)).strip(":") or "-"


def _distinct(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    taken.add(candidate)
    return candidate
