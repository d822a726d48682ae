"""How far a job is, as its ledger tells it: for the live view of this run, and for other terminals."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

from pytest_benchflow.core.process import start_time
from pytest_benchflow.core.text import one_line
from pytest_benchflow.jobs.ledger import JobEvent
from pytest_benchflow.jobs.statistics import rate_interval

_TAIL_BYTES = 16_384
_TOOL_CALLS = ("tool_call_start", "tool_call")
_OPPOSITES = {"passed": "failed", "failed": "passed"}


@dataclass(slots=True)
class Running:
    """An attempt at a rollout that has not ended."""

    key: str
    task: str
    who: str
    """The agent with its model and scene."""
    began: float
    attempt: int = 1
    directory: str | None = None
    phase: str = "start"
    waits: bool = False
    """Whether it failed and waits for its next attempt."""


@dataclass(slots=True)
class Progress:
    """What the events of a ledger add up to."""

    total: int = 0
    selftest: bool = False
    """Whether rollouts of nop pass by failing."""
    began: float | None = None
    host: str | None = None
    pid: int | None = None
    process_start: str | None = None
    ended: float | None = None
    """When the run came to its end; None as long as it has not, or if it was killed."""
    running: dict[str, Running] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    scores: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many rollouts of each task passed, and how many were scored."""
    reward: float = 0.0
    """The rewards of all that were scored, added up."""
    n_reused: int = 0
    n_retries: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    """Why rollouts were not started, and how many."""
    work: dict[str, float] = field(default_factory=dict)
    """Builds and installations that rollouts wait for, and since when."""
    cost_usd: float | None = None
    cost_is_partial: bool = False
    tokens: int | None = None

    def learn(self, events: Iterable[JobEvent]) -> None:
        """Take events in the order of the ledger."""
        for event in events:
            match event.kind:
                case "begin":
                    self._begin(event)
                case "start":
                    self._start(event)
                case "phase":
                    self._enter(event)
                case "retry" | "end":
                    self._end(event)
                case "work":
                    self._work(event)
                case "finish":
                    self.ended = event.ts

    @property
    def has_finished(self) -> bool:
        """Whether the run has come to its end."""
        return self.ended is not None

    @property
    def n_done(self) -> int:
        """How many rollouts have ended."""
        return self.statuses.total()

    @property
    def pass_rate(self) -> tuple[float, tuple[float, float]] | None:
        """The share of those that were scored that passed, with its interval; None before the first."""
        interval = rate_interval([*self.scores.values()])
        return None if interval is None else (self.statuses["passed"] / self.n_scored, interval)

    @property
    def mean_reward(self) -> float | None:
        """The mean reward of those that were scored; None before the first."""
        return self.reward / self.n_scored if self.n_scored else None

    @property
    def n_scored(self) -> int:
        """How many passed or failed."""
        return self.statuses["passed"] + self.statuses["failed"]

    @property
    def longest(self) -> list[Running]:
        """What runs, the longest first."""
        return sorted(self.running.values(), key=lambda each: each.began)

    @property
    def is_dead(self) -> bool:
        """Whether the process of the run is of this machine and gone; one that never says its end was killed."""
        if self.host != socket.gethostname() or self.pid is None:
            return False
        now = start_time(self.pid)
        return not now or self.process_start not in (None, now)

    def _begin(self, event: JobEvent) -> None:
        anew = Progress(event.total or 0, bool(event.selftest), event.ts, event.host, event.pid, event.process_start)
        for each in fields(self):
            setattr(self, each.name, getattr(anew, each.name))

    def _start(self, event: JobEvent) -> None:
        who = "/".join(part for part in (event.agent, event.model, event.scene) if part)
        if event.trial is not None and event.trial > 1:
            who += f" #{event.trial}"
        began = self.running[event.key].began if event.key in self.running else event.ts
        self.running[event.key] = Running(event.key, event.task or event.key, who, began, event.attempt or 1)

    def _enter(self, event: JobEvent) -> None:
        running = self.running.get(event.key)
        if running is not None:
            running.phase = event.phase or running.phase
            running.directory = event.rollout

    def _end(self, event: JobEvent) -> None:
        if not event.reused:
            self._pay(event)
        if event.kind == "retry":
            self.n_retries += 1
            if event.key in self.running:
                self.running[event.key].waits = True
            return
        self.running.pop(event.key, None)
        status = event.status or "error"
        if self.selftest and event.agent == "nop":
            status = _OPPOSITES.get(status, status)
        self.statuses[status] += 1
        if status in _OPPOSITES:
            passed, scored = self.scores.get(event.task_path or "", (0, 0))
            self.scores[event.task_path or ""] = passed + (status == "passed"), scored + 1
            self.reward += event.reward or 0.0
        self.n_reused += bool(event.reused)
        if event.refused:
            self.refusals[event.message or "a rule"] += 1

    def _pay(self, event: JobEvent) -> None:
        if event.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + event.cost_usd
        if event.tokens is not None:
            self.tokens = (self.tokens or 0) + event.tokens
        self.cost_is_partial |= bool(event.cost_is_partial)

    def _work(self, event: JobEvent) -> None:
        what = event.message or ""
        if event.phase == "end":
            self.work.pop(what, None)
        else:
            self.work.setdefault(what, event.ts)


def last_tool_call(job: Path, running: Running) -> str | None:
    """Return the title of the last tool call of an agent, from the end of its trajectory; None if there is none."""
    if running.directory is None:
        return None
    from pytest_benchflow.rollout import TRAJECTORY

    try:
        with (job / running.directory / TRAJECTORY).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            event: object = json.loads(line)
        except (ValueError, RecursionError):  # half a line at either end, or one that is deeper than anything sensible
            continue
        if isinstance(event, dict) and event.get("type") in _TOOL_CALLS:
            return one_line(str(event.get("title") or event.get("kind") or "a tool call"), 60)
    return None
