"""The ledger of a job: what happened to its rollouts, one JSON object per line, appended as it happens.

It is for whoever follows a running job: rules that decide whether more may start, the live view, `bf watch` in another
terminal. Several processes of one run append to it. Results are told by `result.json` alone: a ledger that is lost or
cannot be written costs nobody a score.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.core.process import start_time
from pytest_benchflow.core.text import one_line

if TYPE_CHECKING:
    from pytest_benchflow.rollout import RolloutConfig, RolloutResult

LEDGER = "ledger.jsonl"
_LONGEST_MESSAGE = 500
_CHUNK = 1 << 20

Kind = Literal["begin", "start", "phase", "retry", "end", "work", "finish"]
"""`begin` opens a run and `finish` ends it; each attempt at a rollout has `start`, phases, and then `end`, or `retry`
if another follows. `work` tells of what rollouts wait for: a build, an installation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One line of the ledger; what a kind of event does not tell is None."""

    kind: Kind
    ts: float
    total: int | None = None
    """How many rollouts the run has, in `begin`."""
    selftest: bool | None = None
    """Whether the rollouts of nop have to fail, in `begin`."""
    host: str | None = None
    pid: int | None = None
    """The process of the run, in `begin`."""
    process_start: str | None = None
    """When it started, which tells it from a later one of the same number, in `begin`."""
    key: str = ""
    task: str | None = None
    task_path: str | None = None
    agent: str | None = None
    model: str | None = None
    scene: str | None = None
    trial: int | None = None
    sandbox: str | None = None
    attempt: int | None = None
    rollout: str | None = None
    """The name of the rollout's directory."""
    phase: str | None = None
    status: str | None = None
    reward: float | None = None
    seconds: float | None = None
    tokens: int | None = None
    tool_calls: int | None = None
    cost_usd: float | None = None
    cost_is_partial: bool | None = None
    integrity_findings: int | None = None
    category: str | None = None
    message: str | None = None
    reused: bool | None = None
    """Whether the score is of an earlier run of the job."""
    refused: bool | None = None
    """Whether a rule kept it from starting."""

    @classmethod
    def of_config(cls, kind: Kind, config: RolloutConfig, task: str, attempt: int) -> JobEvent:
        """Return the event of an attempt that begins."""
        return cls(
            kind=kind,
            ts=_now(),
            key=config.key,
            task=task,
            task_path=str(config.task_path),
            agent=config.primary_agent,
            model=config.primary_model,
            scene=config.scene,
            trial=config.trial,
            sandbox=config.sandbox,
            attempt=attempt,
        )

    @classmethod
    def of_result(
        cls,
        kind: Kind,
        result: RolloutResult,
        *,
        attempt: int | None = None,
        reused: bool = False,
        refused: bool = False,
    ) -> JobEvent:
        """Return the event of an attempt that ended."""
        why = (result.skipped or result.agent_detail) if result.error is None else result.error.message
        return cls(
            kind=kind,
            ts=_now(),
            key=result.key,
            task=result.task_name,
            task_path=result.task_path,
            agent=result.agent,
            model=result.model,
            scene=result.scene,
            trial=result.trial,
            sandbox=result.sandbox,
            attempt=attempt,
            rollout=result.rollout_name or None,
            phase=None if result.error is None else result.error.phase,
            status=result.status,
            reward=result.reward,
            seconds=result.timing.get("total"),
            tokens=result.total_tokens,
            tool_calls=result.n_tool_calls,
            cost_usd=result.attempt_usd,
            cost_is_partial=result.lacks_cost or None,
            integrity_findings=len(result.integrity),
            category=None if result.error is None else result.error.category.value,
            message=None if why is None else one_line(why)[:_LONGEST_MESSAGE],
            reused=reused or None,
            refused=refused or None,
        )


class Ledger:
    """Append to the ledger of a job, and read what all processes of the run have appended; safe for threads."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / LEDGER
        self._descriptor: int | None = None
        self._reader = LedgerReader(self.path)
        self._lock = threading.Lock()
        self._is_whole = True
        """Whether what was appended last is there to its end, or a full disk has cut it short."""

    def begin(self, total: int, *, selftest: bool = False) -> None:
        """Begin the ledger of a run anew; done once, before any other process of the run opens it."""
        event = JobEvent(
            kind="begin",
            ts=_now(),
            total=total,
            selftest=selftest or None,
            host=socket.gethostname(),
            pid=os.getpid(),
            process_start=start_time(os.getpid()),
        )
        with suppress(OSError):
            write_atomically(self.path, _line(event))

    def append(self, event: JobEvent) -> None:
        """Append an event, in one write, so that lines of several processes never mix."""
        line = _line(event).encode("utf-8", "backslashreplace")
        with suppress(OSError), self._lock:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self.path, flags, 0o666)
            written = os.write(self._descriptor, line if self._is_whole else b"\n" + line)
            self._is_whole = written >= len(line)

    def finish(self) -> None:
        """Say that the run has ended, if it ever began."""
        if self.path.exists():
            self.append(JobEvent(kind="finish", ts=_now()))

    def news(self) -> list[JobEvent]:
        """Return what was appended since the last call, by whichever process, except phases, which are most of it."""
        with self._lock:
            return [*self._reader.news(phases=False)]

    def close(self) -> None:
        """Close the files; idempotent."""
        with self._lock:
            self._reader.close()
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None


class LedgerReader:
    """Follow a ledger, also one that does not exist yet or that a later run of the job begins anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._rest = b""

    def news(self, *, phases: bool = True) -> Iterator[JobEvent]:
        """Yield the events that were appended since the last call; a line that is being written waits for the next."""
        if not self._open():
            return
        assert self._descriptor is not None
        while data := os.read(self._descriptor, _CHUNK):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                if not phases and line.startswith(_PHASE):
                    continue
                event = _parse(line)
                if event is not None:
                    yield event

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> bool:
        try:
            now = self._path.stat()
        except OSError:
            return self._descriptor is not None
        if self._descriptor is not None:
            known = os.fstat(self._descriptor)
            if (known.st_dev, known.st_ino) == (now.st_dev, now.st_ino):
                return True
            self.close()
        try:
            self._descriptor, self._rest = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC), b""
        except OSError:
            return False
        return True


_PHASE = b'{"kind": "phase"'
_FIELDS = frozenset(each.name for each in fields(JobEvent))


def _line(event: JobEvent) -> str:
    known = {name: value for name in JobEvent.__slots__ if (value := getattr(event, name)) not in (None, "")}
    return json.dumps(known, ensure_ascii=False) + "\n"


def _parse(line: bytes) -> JobEvent | None:
    """Return an event, None for a line that a kill or a full disk cut short; fields of later releases are left out."""
    try:
        data = json.loads(line)
        return JobEvent(**{name: value for name, value in data.items() if name in _FIELDS})
    except (ValueError, TypeError, AttributeError):
        return None


def _now() -> float:
    return round(time.time(), 3)
