"""What is known of a rollout while it runs, and its directory on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents import AgentOutcome, PromptResult
from pytest_benchflow.errors import SandboxError
from pytest_benchflow.events import Event
from pytest_benchflow.rollout.result import CheckSummary, ErrorInfo, RolloutResult, StepResult
from pytest_benchflow.rollout.store import Trajectory, utc_now, write_json
from pytest_benchflow.verify import headline

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.tasks import Task
    from pytest_benchflow.verify import Checks


class Record:
    """Collects the facts of one rollout; `result()` may be taken at any time."""

    def __init__(self, config: RolloutConfig, task: Task) -> None:
        self.config = config
        self.task = task
        self.directory: Path | None = None
        self.name = config.name_for(task.short_name)
        self.sandbox = config.sandbox
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
        self.prompts: list[str] = []
        self.steps: list[StepResult] = []
        self.notes: list[str] = []
        self.timing: dict[str, float] = {}
        self.started_at = utc_now()
        self._began = time.monotonic()
        self._trajectory: Trajectory | None = None
        self.is_written = False

    def make_directory(self, job: Path) -> Path:
        """Claim a directory of this rollout's own in the job; a rollout run again gets the next one."""
        job.mkdir(parents=True, exist_ok=True)
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
            self._trajectory = Trajectory(directory / "trajectory" / "acp_trajectory.jsonl")
            return directory
        raise AssertionError("unreachable")

    def emit(self, event: Event, *, step: str | None = None) -> None:
        """Append an event to the trajectory on disk."""
        if self._trajectory is not None:
            self._trajectory.append(event, **({"step": step} if step else {}))

    def prompted(self, prompt: str, result: PromptResult) -> None:
        """Add the end of one prompt."""
        self.prompts.append(prompt)
        self.outcome, self.detail = result.outcome, result.detail
        self.n_tool_calls += result.n_tool_calls
        if self.directory is not None:
            write_json(self.directory / "prompts.json", self.prompts)

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
        checks = self.checks
        return RolloutResult(
            task_name=self.task.name,
            task_path=str(self.task.path),
            task_digest=self.digest,
            rollout_name=self.name,
            agent=self.config.agent,
            model=self.config.model,
            trial=self.config.trial,
            sandbox=self.sandbox,
            threshold=self.config.threshold,
            rewards=None if self.error else self.rewards,
            reward=headline(self.rewards) if self.rewards and not self.error else None,
            error=self.error,
            skipped=self.skipped,
            agent_outcome=self.outcome,
            agent_detail=self.detail,
            n_tool_calls=self.n_tool_calls,
            n_prompts=len(self.prompts),
            checks=checks
            and CheckSummary(passed=len(checks.passed), failed=len(checks.failed), failing=[*checks.failed]),
            verifier_tail=self.verifier_tail,
            steps=self.steps,
            notes=self.notes,
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
