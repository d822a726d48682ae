"""What is known of a rollout while it runs, and its directory on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_benchflow.agents import AgentOutcome, PromptResult, Session
from pytest_benchflow.errors import SandboxError, UsageError
from pytest_benchflow.events import Event, Json
from pytest_benchflow.rollout.result import CheckSummary, ErrorInfo, RolloutResult, StepResult, Tokens
from pytest_benchflow.rollout.secrets import Redactor
from pytest_benchflow.rollout.store import (
    TRAJECTORY,
    Trajectory,
    as_json,
    read_trajectory,
    utc_now,
    write_json,
    write_text,
)
from pytest_benchflow.text import shortened
from pytest_benchflow.verify import headline

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.tasks import Task
    from pytest_benchflow.verify import Checks

N = TypeVar("N", int, float)


class Record:
    """Collects the facts of one rollout; `result()` may be taken at any time."""

    def __init__(self, config: RolloutConfig, task: Task) -> None:
        self.config = config
        self.task = task
        self.directory: Path | None = None
        self.name = config.name_for(task.short_name)
        self.sandbox = config.sandbox
        self.agent = config.primary_agent
        self.model = config.primary_model
        self.digest: str | None = None
        self.phase = "create"
        self.rewards: dict[str, float] | None = None
        self.checks: Checks | None = None
        self.verifier_tail: str | None = None
        self.error: ErrorInfo | None = None
        self.skipped: str | None = None
        self.outcome: AgentOutcome | None = None
        self.detail: str | None = None
        self.n_tool_calls = 0
        self.tokens = Tokens()
        self.cost_usd: float | None = None
        self.message: str | None = None
        self.agent_name: str | None = None
        self.agent_version: str | None = None
        self.prompts: list[str] = []
        self.redactor = Redactor()
        self.steps: list[StepResult] = []
        self.notes: list[str] = []
        self.timing: dict[str, float] = {}
        self.started_at = utc_now()
        self._began = time.monotonic()
        self._trajectory: Trajectory | None = None
        self.is_written = False

    def make_directory(self, job: Path) -> Path:
        """Claim a directory of this rollout's own in the job; a rollout run again gets the next one."""
        try:
            job.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{job} cannot be made: {error.strerror}", advice="choose another jobs_dir") from None
        for attempt in count(1):
            self.name = self.config.name_for(self.task.short_name, attempt)
            directory = job / self.name
            try:
                directory.mkdir()
            except FileExistsError:
                if attempt > 10_000:
                    raise SandboxError(f"{directory} and all its successors exist") from None
                continue
            self.directory = directory
            self._trajectory = Trajectory(directory / TRAJECTORY, self.redactor.text)
            return directory
        raise AssertionError("unreachable")

    def emit(self, event: Event, **where: Json) -> None:
        """Append an event to the trajectory on disk, with where in the rollout it happened."""
        if self._trajectory is not None:
            self._trajectory.append(event, **{key: value for key, value in where.items() if value is not None})

    def append_line(self, name: str, line: str) -> None:
        """Append a line to a file of the rollout."""
        if self.directory is not None:
            with (self.directory / name).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(self.redactor.text(line) + "\n")

    @property
    def n_events(self) -> int:
        """How many events the trajectory has so far."""
        return 0 if self._trajectory is None else self._trajectory.n_events

    def events(self, since: int = 0) -> list[Event]:
        """Return the events from number `since` on, read back from disk."""
        return [] if self.directory is None else read_trajectory(self.directory, since)

    def connected(self, session: Session) -> None:
        """Remember what the agent calls itself; the first one counts."""
        self.agent_name = self.agent_name or getattr(session, "agent_name", None)
        self.agent_version = self.agent_version or getattr(session, "agent_version", None)

    def prompting(self, prompt: str) -> None:
        """Add a prompt that is about to be sent."""
        self.prompts.append(prompt)
        if self.directory is not None:
            write_text(self.directory / "prompts.json", self.redactor.text(as_json(self.prompts)))

    def prompted(self, result: PromptResult) -> None:
        """Add the end of one prompt."""
        self.outcome, self.detail = result.outcome, result.detail
        self.message = result.message or self.message
        self.n_tool_calls += result.n_tool_calls
        used = result.usage
        self.tokens = Tokens(
            input=_added(self.tokens.input, used.input),
            output=_added(self.tokens.output, used.output),
            cached=_added(self.tokens.cached, used.cached),
        )
        self.cost_usd = _added(self.cost_usd, used.cost_usd)

    @contextmanager
    def in_phase(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to `phase`."""
        self.phase = phase
        began = time.monotonic()
        try:
            yield
        finally:
            self.timing[phase] = round(self.timing.get(phase, 0.0) + time.monotonic() - began, 4)

    def result(self) -> RolloutResult:
        """Return the result as far as it is known."""
        checks, redact = self.checks, self.redactor.text
        return RolloutResult(
            task_name=self.task.name,
            task_path=str(self.task.path),
            task_digest=self.digest,
            rollout_name=self.name,
            agent=self.agent,
            agent_name=self.agent_name,
            agent_version=self.agent_version,
            model=self.model,
            scene=self.config.scene,
            trial=self.config.trial,
            sandbox=self.sandbox,
            threshold=self.config.threshold,
            rewards=None if self.error else self.rewards,
            reward=headline(self.rewards) if self.rewards and not self.error else None,
            error=self.error and self.error.model_copy(update={"message": redact(self.error.message)}),
            skipped=self.skipped,
            agent_outcome=self.outcome,
            agent_detail=self.detail and redact(self.detail),
            last_message=self.message and redact(shortened(self.message)),
            n_tool_calls=self.n_tool_calls,
            n_prompts=len(self.prompts),
            tokens=self.tokens,
            cost_usd=self.cost_usd,
            checks=checks
            and CheckSummary(
                passed=len(checks.passed), failed=len(checks.failed), failing=[*map(redact, checks.failed)]
            ),
            verifier_tail=self.verifier_tail and redact(self.verifier_tail),
            steps=self.steps,
            notes=[*map(redact, self.notes)],
            timing={**self.timing, "total": round(time.monotonic() - self._began, 4)},
            started_at=self.started_at,
            finished_at=utc_now(),
            rollout_dir=self.directory,
        )

    def write(self) -> RolloutResult:
        """Write `result.json` and `timing.json` and return the result."""
        result = self.result()
        self.is_written = True
        if self._trajectory is not None:
            self._trajectory.close()
        if self.directory is not None:
            write_json(self.directory / "timing.json", result.timing)
            write_json(self.directory / "result.json", result.model_dump(mode="json"))
        return result


def _added(total: N | None, more: N | None) -> N | None:
    """Add what is known; two unknowns stay unknown."""
    return more if total is None else total if more is None else total + more
