"""How many rollouts may use a model at the same time: as many as an option says, fewer while its provider objects."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchflow.core.errors import BenchflowError, CannotRunHere
    from pytest_benchflow.jobs.ledger import JobEvent
    from pytest_benchflow.rollout import RolloutConfig

OBJECTION = re.compile(r"\b429\b|rate.?limit|too many requests", re.IGNORECASE)
"""What a provider says that limits the rate."""
#: Refusals of one burst are one objection.
_BURST_SEC = 10.0
_FIRST_PAUSE_SEC, _LONGEST_PAUSE_SEC = 15.0, 240.0

Release = Callable[[], None]


@dataclass
class _State:
    """What the job's ledger says of one model."""

    running: int = 0
    most: int | None = None
    """How many its provider seems to take; None while it has not objected."""
    peak: int = 0
    """How many ran when it objected first."""
    objected: float = 0.0
    pause_sec: float = 0.0


class ModelLimits:
    """Lets rollouts start as their models can take them; one for each process of a run, all with the same ledger.

    It learns from the ledger as `StartRule` does, and refuses nothing: what has to wait stays in the engine's queue.
    When a provider limits the rate, half as many of its model's rollouts may run, and none starts for a while; each
    score then allows one more.
    """

    def __init__(self, most: int | None, *, shared: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        """Allow `most` per model; processes that are given the same directory allow them together."""
        self._most = most
        self._shared = shared
        self._clock = clock
        self._states: dict[str, _State] = {}
        self._keys: dict[str, str] = {}
        self._held: Counter[str] = Counter()

    def learn(self, event: JobEvent) -> None:
        """Take an event of the job's ledger, of whichever process of the run."""
        if event.reused or event.refused:
            return
        if event.kind == "start":
            model = self._keys[event.key] = event.model or event.agent or ""
            self._states.setdefault(model, _State()).running += 1
        elif event.kind in ("end", "retry") and event.key in self._keys:
            state = self._states[self._keys.pop(event.key)]
            if event.message and OBJECTION.search(event.message):
                self._object(state, event.ts)
            elif event.reward is not None:
                self._recover(state)
            state.running -= 1

    def refusal(self, config: RolloutConfig) -> BenchflowError | CannotRunHere | None:
        """Refuse nothing."""
        return None

    def may_try_again(self, model: str) -> bool:
        """Return whether another attempt may start at a rollout that has its permission and runs no more."""
        state = self._states.get(model)
        return state is None or self._has_room(state, state.running)

    def _has_room(self, state: _State, running: int) -> bool:
        if state.most is None:
            return True
        return self._clock() >= state.objected + state.pause_sec and running < state.most

    def permit(self, model: str) -> Release | None:
        """Return what gives the permission back that a rollout of this model starts; None if it has to wait."""
        state = self._states.get(model)
        if state is not None and not self._has_room(state, max(state.running, self._held[model])):
            return None
        if self._most is None:
            return self._hold(model, None)
        if self._shared is None:
            return self._hold(model, None) if self._held[model] < self._most else None
        slot = self._free_slot(model)
        return None if slot is None else self._hold(model, slot)

    def _hold(self, model: str, slot: int | None) -> Release:
        self._held[model] += 1

        def release() -> None:
            self._held[model] -= 1
            if slot is not None and slot >= 0:
                os.close(slot)

        return release

    def _free_slot(self, model: str) -> int | None:
        """Return a locked file of the model's, None if all are taken; -1 where files cannot be locked."""
        assert self._shared is not None
        assert self._most is not None
        name = hashlib.sha256(model.encode()).hexdigest()[:12]
        try:
            self._shared.mkdir(exist_ok=True)
            for number in range(self._most):
                slot = os.open(self._shared / f"{name}-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                try:
                    fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(slot)
                else:
                    return slot
        except OSError:
            return -1
        return None

    @staticmethod
    def _object(state: _State, ts: float) -> None:
        if ts < state.objected + _BURST_SEC:
            return
        state.peak = max(state.peak, state.running)
        state.most = max(1, state.running // 2)
        state.objected = ts
        state.pause_sec = min(max(_FIRST_PAUSE_SEC, 2 * state.pause_sec), _LONGEST_PAUSE_SEC)

    @staticmethod
    def _recover(state: _State) -> None:
        if state.most is not None:
            state.most += 1
            if state.most > state.peak:
                state.most, state.pause_sec = None, 0.0
