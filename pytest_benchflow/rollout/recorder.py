"""What is known of a rollout while it runs, its directory on disk, and the end of its sandbox."""

from __future__ import annotations

import asyncio
import errno
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_benchflow.agents import AgentOutcome, PromptResult, Session
from pytest_benchflow.core.errors import BenchflowError, SandboxError, UsageError
from pytest_benchflow.core.secrets import Redactor
from pytest_benchflow.core.text import shortened
from pytest_benchflow.core.types import Event, Json
from pytest_benchflow.rollout.result import CheckSummary, ErrorInfo, RolloutResult, StepResult, Tokens
from pytest_benchflow.rollout.trajectory import (
    TRAJECTORY,
    Trajectory,
    as_json,
    read_trajectory,
    utc_now,
    write_json,
    write_text,
)
from pytest_benchflow.verify import primary_reward

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.step_run import StepRun
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.tasks import Task
    from pytest_benchflow.verify import Checks


STOP_TIMEOUT_SEC = 60.0
_RECOVER_TIMEOUT_SEC = 30.0
_SHOWN_FILES = 5
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def describe(error: BaseException, recorder: Recorder) -> ErrorInfo:
    """Describe what ended a rollout; of what nobody foresaw the traceback is kept."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        advice = "make room, or choose another --bf-jobs-dir"
        error = BenchflowError(f"results cannot be written: {error.strerror}", advice=advice)
    if not isinstance(error, BenchflowError):
        if recorder.directory is not None:
            with suppress(OSError):
                write_text(recorder.directory / "exception.txt", "".join(traceback.format_exception(error)))
        error = BenchflowError(f"{type(error).__name__}: {error}", advice="a bug in the harness; see exception.txt")
    return ErrorInfo.of(error, recorder.phase)


def write_result(recorder: Recorder) -> RolloutResult:
    """Write the result and return it; that it cannot be written is the result then."""
    try:
        return recorder.write()
    except OSError as error:
        recorder.error = recorder.error or describe(error, recorder)
        return recorder.result()


def write_sandbox_facts(recorder: Recorder, sandbox: Sandbox) -> None:
    """Write `sandbox.json`, so that what a killed run leaves can be found."""
    assert recorder.directory is not None  # setup() made it
    facts = {"sandbox": recorder.sandbox, "id": sandbox.id, "workdir": sandbox.workdir}
    write_json(recorder.directory / "sandbox.json", {**facts, "notes": [*sandbox.notes]})


async def recover(work: StepRun) -> None:
    """Keep the logs and artifacts of agents whose rollout broke, as far as they can still be had."""
    with suppress(Exception):
        async with asyncio.timeout(_RECOVER_TIMEOUT_SEC):
            await work.recover()


async def end_sandbox(recorder: Recorder, sandbox: Sandbox, *, may_keep: bool) -> None:
    """Stop the sandbox, unless it is to be kept; one that cannot outlive its runner leaves its workspace."""
    keep = may_keep and recorder.config.keeps_sandbox(passed=recorder.result().passed)
    if keep and not sandbox.capabilities.survives_runner:
        await _keep_workspace(recorder, sandbox)
    await sandbox.stop(delete=not keep)
    recorder.notes += [note for note in sandbox.notes if note not in recorder.notes]
    if keep:
        write_sandbox_facts(recorder, sandbox)


def mask_secrets(recorder: Recorder) -> None:
    """Look once more for secrets in everything that was written, and mask what is found."""
    if recorder.directory is not None and (found := recorder.redactor.scrub(recorder.directory)):
        more = f" and {len(found) - _SHOWN_FILES} more" if len(found) > _SHOWN_FILES else ""
        recorder.notes.append(f"a secret was masked in {', '.join(found[:_SHOWN_FILES])}{more}")


async def _keep_workspace(recorder: Recorder, sandbox: Sandbox) -> None:
    assert recorder.directory is not None  # setup() made it
    where = f"{recorder.sandbox} sandboxes end with their rollout"
    try:
        async with asyncio.timeout(STOP_TIMEOUT_SEC / 2):
            await sandbox.download_dir(sandbox.workdir, recorder.directory / "workspace")
    except (BenchflowError, OSError) as error:
        recorder.notes.append(f"{where}, and {sandbox.workdir} could not be copied: {error}")
    else:
        recorder.notes.append(f"{where}: {sandbox.workdir} is kept as workspace/ beside its result.json")


N = TypeVar("N", int, float)


class Recorder:
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
            key=self.config.key,
            agent=self.agent,
            agent_name=self.agent_name,
            agent_version=self.agent_version,
            model=self.model,
            scene=self.config.scene,
            trial=self.config.trial,
            sandbox=self.sandbox,
            threshold=self.config.threshold,
            rewards=None if self.error else self.rewards,
            reward=primary_reward(self.rewards) if self.rewards and not self.error else None,
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
