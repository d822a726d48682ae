"""Which rollout starts when, and how many at once: what is known before anything runs.

Rollouts that took long in earlier runs start first, so that none of them hangs on alone at the end; where several
agents take part they keep step with each other, so that a run that is stopped early can be compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.jobs.machine import free_memory_mb, usable_cores

if TYPE_CHECKING:
    from pytest_benchflow.rollout import RolloutResult

_VERSION = 1
_MOST_KEPT = 200_000
#: Rollouts wait more than they compute: for models, for tests. What runs elsewhere costs this machine next to nothing.
_PER_CORE, _PER_CORE_REMOTE = 4, 32
_MOST, _MOST_REMOTE = 64, 256
#: An agent of Node or Python with the tests of its task, and what the runner needs for a sandbox elsewhere.
_MEMORY_MB, _MEMORY_MB_REMOTE = 400, 40
#: Part of the memory that is left to others.
_SPARE = 0.2
#: From which part of the shortest possible time on a rollout that would end later than that goes first.
_URGENT = 0.9


class Width(NamedTuple):
    """How many rollouts run at once, and why so many."""

    number: int
    reason: str


def auto_width(*, is_remote: bool, cores: int | None = None, memory_mb: float | None = None) -> Width:
    """Return how many rollouts fit this machine when nobody says, by where they run, cores and free memory."""
    cores = usable_cores() if cores is None else cores
    memory_mb = free_memory_mb() if memory_mb is None else memory_mb
    per_core, most = (_PER_CORE_REMOTE, _MOST_REMOTE) if is_remote else (_PER_CORE, _MOST)
    each = _MEMORY_MB_REMOTE if is_remote else _MEMORY_MB
    by_memory = max(1, int(memory_mb * (1 - _SPARE) / each))
    if by_memory < min(most, per_core * cores):
        return Width(by_memory, f"{memory_mb / 1024:.1f} GB of memory are free")
    return Width(min(most, per_core * cores), f"{cores} core{'s' if cores > 1 else ''}")


@dataclass(frozen=True, slots=True)
class Expected:
    """A rollout that has not started: whose it is, and how long it will take if anybody knows."""

    agent: str
    seconds: float | None


def start_order(rollouts: Sequence[Expected], width: int) -> list[int]:
    """Return the numbers of rollouts in the order in which to start them, `width` at a time.

    Each agent's longest come first. Agents take turns such that the same part of each one's work has been started,
    until some rollout has to start for all to end as early as possible; then the longest of all goes first. What
    nobody knows counts as the median; if nothing is known, the order stays.
    """
    known = [each.seconds for each in rollouts if each.seconds is not None]
    if not known:
        return [*range(len(rollouts))]
    usual = median(known)
    seconds = [usual if each.seconds is None else each.seconds for each in rollouts]
    queues: dict[str, list[int]] = {}
    for number, each in enumerate(rollouts):
        queues.setdefault(each.agent, []).append(number)
    for queue in queues.values():
        queue.sort(key=lambda number: (seconds[number], -number))  # the next one is the last
    totals = {agent: sum(seconds[number] for number in queue) or 1.0 for agent, queue in queues.items()}
    started = dict.fromkeys(queues, 0.0)
    bound = max(sum(seconds) / max(1, width), *seconds)
    order: list[int] = []
    while queues:
        agent = max(queues, key=lambda name: seconds[queues[name][-1]])
        now = sum(started.values()) / max(1, width)
        if now + seconds[queues[agent][-1]] < _URGENT * bound:
            agent = min(queues, key=lambda name: started[name] / totals[name])
        order.append(queues[agent].pop())
        started[agent] += seconds[order[-1]]
        if not queues[agent]:
            del queues[agent]
    return order


class Durations:
    """How long rollouts took in earlier runs, kept in a file; one that cannot be read or written is not an error."""

    def __init__(self, path: Path | None, root: Path) -> None:
        self._path = path
        self._root = root
        self._seconds = self._load()
        self._changed = False

    def expect(self, task: str | Path, agent: str, model: str | None, scene: str | None) -> float | None:
        """Return the seconds that a rollout may take, None if neither it nor its task was ever run."""
        name = self._name(task)
        return self._seconds.get(_key(name, agent, model, scene), self._seconds.get(name))

    def learn(self, results: Iterable[RolloutResult]) -> None:
        """Remember how long these took; what was cut short, or never ran, says nothing."""
        for result in results:
            seconds = result.timing.get("total")
            if result.reward is None or not seconds:
                continue
            name = self._name(result.task_path)
            for key in (_key(name, result.agent, result.model, result.scene), name):
                before = self._seconds.pop(key, seconds)  # what was learned last is kept longest
                self._seconds[key] = round((before + seconds) / 2, 3)
            self._changed = True

    def save(self) -> None:
        """Write the file if anything was learned."""
        if self._path is None or not self._changed:
            return
        kept = dict([*self._seconds.items()][-_MOST_KEPT:])
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps({"version": _VERSION, "seconds": kept}), errors="surrogatepass")
        except OSError:
            return
        self._changed = False

    def _load(self) -> dict[str, float]:
        try:
            data = json.loads(self._path.read_bytes()) if self._path is not None else {}
            stored = data["seconds"] if data.get("version") == _VERSION else {}
            return {str(key): float(value) for key, value in stored.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}

    def _name(self, task: str | Path) -> str:
        return os.path.relpath(task, self._root)


def _key(name: str, agent: str, model: str | None, scene: str | None) -> str:
    return "|".join((name, agent, model or "", scene or ""))
