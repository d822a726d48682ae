"""The facts of a rollout, recorded as it runs and written to its directory, and the result made from them."""

from __future__ import annotations

import errno
import json
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, TypeVar

from pydantic_core import PydanticSerializationError, to_json

from pytest_benchflow.agents import AgentOutcome, PromptResult, Session, Usage
from pytest_benchflow.core.errors import BenchflowError, CannotRunHere, SandboxError, UsageError
from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.core.secrets import Redactor
from pytest_benchflow.core.text import shortened
from pytest_benchflow.core.types import Event, Json
from pytest_benchflow.providers import Prices
from pytest_benchflow.rollout.result import (
    TRAJECTORY,
    Attempt,
    CheckSummary,
    ErrorInfo,
    FrameEntry,
    RolloutResult,
    StepResult,
    Tokens,
    combine_steps,
    read_trajectory,
)
from pytest_benchflow.verify import combined, event_line, primary_reward, reward_events

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.resources import TaskVersion
    from pytest_benchflow.sandboxes import FileChange, Sandbox
    from pytest_benchflow.tasks import Task, TaskStep
    from pytest_benchflow.verify import CriterionScore, Finding, JudgeRecord, RewardEvent, Verification


N = TypeVar("N", int, float)

_SHOWN_FILES = 5
_MAX_FRAME = 2_000
_MAX_ATTEMPTS = 10_000
MAX_TRAJECTORY = 128 << 20
"""Characters of a trajectory; hours of work leave a few percent of that."""
_SHORT_EVENT = 2_000
_STAGES = {
    "environment_setup": ("setup", "start"),
    "agent_setup": ("install_agent", "connect"),
    "agent_execution": ("execute",),
    "verifier": ("verify", "soft_verify"),
}
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
#: Agents may send half a character; escaped like this it is still valid JSON.
_ESCAPE = "backslashreplace"


def write_json(path: Path, data: object) -> None:
    """Replace a file by JSON atomically: a reader, or a kill at any moment, sees the old file or the new one."""
    write_text(path, _as_json(data))


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically."""
    write_atomically(path, text, errors=_ESCAPE)


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _as_json(data: object) -> str:
    try:
        return to_json(data, indent=2, inf_nan_mode="constants").decode() + "\n"
    except PydanticSerializationError:  # half a character, as agents send them
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


class Trajectory:
    """Append events as they happen, one JSON object per line, so that a kill loses at most the last one.

    An agent that floods fills no disk: past a limit only short events are written, and past another one none.
    """

    def __init__(self, path: Path, redact: Callable[[str], str] = str) -> None:
        self._path = path
        self._redact = redact
        self._file: IO[str] | None = None
        self._size = 0
        self.n_events = 0
        self.n_dropped = 0

    def append(self, event: Event, **where: Json) -> None:
        """Stamp an event with its time and number and write it through."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8", errors=_ESCAPE)
        line = {"seq": self.n_events + 1, "ts": round(time.time(), 3), **where, **event}
        text = self._redact(json.dumps(line, ensure_ascii=False)) + "\n"
        if not self._has_room(len(text)):
            self.n_dropped += 1
            return
        self.n_events += 1
        self._size += len(text)
        self._file.write(text)
        self._file.flush()

    def _has_room(self, size: int) -> bool:
        """Return whether an event may still be written: short ones tell how it went on, long ones are the flood."""
        longest = MAX_TRAJECTORY if self._size < MAX_TRAJECTORY else _SHORT_EVENT
        return size <= longest and self._size < MAX_TRAJECTORY * 5 // 4

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None


class VerifiedStep(NamedTuple):
    """The verification of a step, and the outcome of the agent before it."""

    verification: Verification
    agent_outcome: AgentOutcome | None
    reward_events: list[RewardEvent]


class Recorder:
    """Collects the facts of one rollout as they are reported; `result()` derives the result from them at any time."""

    def __init__(self, config: RolloutConfig, task: Task, *, agent: str, model: str | None = None) -> None:
        self.config = config
        self.task = task
        self.agent = agent
        self.model = model
        self.name = config.name_for(task.short_name)
        self.sandbox = config.sandbox
        """Name of the backend; the one that `auto` stands for is known after it was chosen."""
        self.version: TaskVersion | None = None
        self.directory: Path | None = None
        self.redactor = Redactor()
        self.phase = "create"
        self.timing: dict[str, float] = {}
        self.session_names: list[tuple[str | None, str | None]] = []
        """What the agent of each session calls itself, and its version."""
        self.models: dict[str, None] = {}
        """Every model that answered, in the order of first answers."""
        self.prompts: list[str] = []
        self.prompt_results: list[PromptResult] = []
        self.verified_steps: dict[str | None, VerifiedStep] = {}
        self.verifier_tail: str | None = None
        self.judge_records: list[JudgeRecord] = []
        """What every judging used, those that gave no verdict and those between rounds included."""
        self.notes: list[str] = []
        self.attempts: list[Attempt] = []
        """Earlier attempts at the same rollout."""
        self.findings: list[Finding] = []
        """The defences that the rollout tripped."""
        self.frame: Sequence[FileChange] | None = None
        """What the agent changed outside the workspace, if somebody wants to know."""
        self.error: ErrorInfo | None = None
        self.skipped: str | None = None
        self.is_cancelled = False
        self.agent_fault: str | None = None
        """What an agent did to the environment, if the next one could not start in it or nothing could be verified."""
        self.is_written = False
        self._started_at = utc_now()
        self._start = time.monotonic()
        self._trajectory: Trajectory | None = None

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
                if attempt > _MAX_ATTEMPTS:
                    raise SandboxError(f"{directory} and all its successors exist") from None
                continue
            self.directory = directory
            self._trajectory = Trajectory(directory / TRAJECTORY, self.redactor.text)
            return directory
        raise AssertionError("unreachable")

    @contextmanager
    def in_phase(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to `phase`."""
        self.phase = phase
        start = time.monotonic()
        try:
            yield
        finally:
            self.timing[phase] = round(self.timing.get(phase, 0.0) + time.monotonic() - start, 4)

    def add_session(self, session: Session) -> None:
        """Add what the agent of a new session calls itself."""
        self.session_names.append((getattr(session, "agent_name", None), getattr(session, "agent_version", None)))

    def add_prompt(self, prompt: str) -> None:
        """Add a prompt that is about to be sent."""
        self.prompts.append(prompt)
        if self.directory is not None:
            write_text(self.directory / "prompts.json", self.redactor.text(_as_json(self.prompts)))

    def add_verification(self, step: TaskStep, verification: Verification) -> None:
        """Add the verification of a step; a second one of the same step replaces the first."""
        last = self.last_prompt_result
        self.verified_steps[step.name] = VerifiedStep(
            verification, None if last is None else last.outcome, reward_events(verification)
        )

    def add_error(self, error: BaseException) -> None:
        """Add what ended the rollout: the reason to skip it, or an error; a traceback is kept of unexpected ones."""
        if isinstance(error, CannotRunHere):
            self.skipped = str(error)
            return
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            advice = "make room, or choose another --bf-jobs-dir"
            error = BenchflowError(f"results cannot be written: {error.strerror}", advice=advice)
        if not isinstance(error, BenchflowError):
            if self.directory is not None:
                with suppress(OSError):
                    write_text(self.directory / "exception.txt", "".join(traceback.format_exception(error)))
            error = BenchflowError(f"{type(error).__name__}: {error}", advice="a bug in the harness; see exception.txt")
        self.error = ErrorInfo.of(error, self.phase)

    def emit(self, event: Event, **where: Json) -> None:
        """Append an event to the trajectory on disk, with where in the rollout it happened."""
        models = event.get("models")
        if event.get("type") == "stop" and isinstance(models, list):
            self.models |= {name: None for name in models if isinstance(name, str)}
        if self._trajectory is not None:
            self._trajectory.append(event, **{key: value for key, value in where.items() if value is not None})

    def append_line(self, name: str, line: Json) -> None:
        """Append a line of JSON to a file of the rollout."""
        if self.directory is not None:
            text = self.redactor.text(json.dumps(line, ensure_ascii=False))
            with (self.directory / name).open("a", encoding="utf-8", errors=_ESCAPE) as file:
                file.write(text + "\n")

    @property
    def last_prompt_result(self) -> PromptResult | None:
        """How the last prompt ended, None before the first one."""
        return self.prompt_results[-1] if self.prompt_results else None

    @property
    def n_events(self) -> int:
        """How many events the trajectory has so far."""
        return 0 if self._trajectory is None else self._trajectory.n_events

    def events(self, since: int = 0, until: int | None = None) -> list[Event]:
        """Return the events from number `since` up to `until`, read back from disk."""
        return [] if self.directory is None else read_trajectory(self.directory, since, until)

    def result(self) -> RolloutResult:
        """Return the result as far as it is known."""
        redact = self.redactor.text
        agent_names, agent_versions = zip(*self.session_names, strict=True) if self.session_names else ((), ())
        last, usages = self.last_prompt_result, [result.usage for result in self.prompt_results]
        messages = [result.message for result in self.prompt_results if result.message]
        rewards = None if self.error or self.is_cancelled else self._rewards()
        detail = self.agent_fault or (None if last is None else last.detail)
        costs = [usage.cost_usd for usage in usages if usage.cost_usd is not None]
        priced = None if costs else self._priced(usages)
        return RolloutResult(
            task_name=self.task.name,
            task_path=str(self.task.path),
            task_digest=None if self.version is None else self.version.digest,
            rollout_name=self.name,
            key=self.config.key,
            difficulty=self.task.difficulty,
            category=self.task.category,
            tags=[*self.task.tags],
            agent=self.agent,
            agent_name=next(filter(None, agent_names), None),
            agent_version=next(filter(None, agent_versions), None),
            model=self.model,
            models=[*map(redact, self.models)],
            scene=self.config.scene,
            trial=self.config.trial,
            sandbox=self.sandbox,
            threshold=self.config.threshold,
            rewards=rewards,
            reward=primary_reward(rewards) if rewards else None,
            error=self.error and _redacted(self.error, redact),
            skipped=self.skipped,
            cancelled=self.is_cancelled,
            agent_outcome=None if last is None else last.outcome,
            agent_detail=redact(detail) if detail is not None else None,
            last_message=redact(shortened(messages[-1])) if messages else None,
            n_tool_calls=sum(result.n_tool_calls for result in self.prompt_results),
            n_prompts=len(self.prompts),
            tokens=Tokens(
                input=_total(usage.input for usage in usages),
                output=_total(usage.output for usage in usages),
                cached=_total(usage.cached for usage in usages),
            ),
            cost_usd=sum(costs) if costs else priced,
            cost_is_priced=priced is not None,
            cost_is_partial=0 < len(costs) < len(self.prompts),
            attempts=[*self.attempts],
            checks=self._check_summary(),
            criteria=self._criteria(),
            judge=self._judge(),
            reward_events=[event for _, events in self._reward_events() for event in events],
            verifier_tail=self.verifier_tail and redact(self.verifier_tail),
            steps=[
                StepResult(name=name, rewards=step.verification.rewards, agent_outcome=step.agent_outcome)
                for name, step in self.verified_steps.items()
                if name is not None
            ],
            integrity=[
                finding.model_copy(update={"message": redact(finding.message), "paths": [*map(redact, finding.paths)]})
                for finding in self.findings
            ],
            integrity_policy=self.config.integrity,
            hardening_off=self._opt_outs(),
            frame=None if self.frame is None else [_frame_entry(change) for change in self.frame[:_MAX_FRAME]],
            notes=[*map(redact, self.notes)],
            timing={**self.timing, "total": round(time.monotonic() - self._start, 4)},
            started_at=self._started_at,
            finished_at=utc_now(),
            rollout_dir=self.directory,
        )

    def _priced(self, usages: Sequence[Usage]) -> float | None:
        """Return what the tokens cost by the prices of the run, None if it has none or not every prompt told them."""
        if not self.config.price or not usages or any(usage.input is None or usage.output is None for usage in usages):
            return None
        return Prices.read(self.config.price).cost(
            self.agent,
            self.models or [self.model],
            input=_total(usage.input for usage in usages),
            output=_total(usage.output for usage in usages),
            cached=_total(usage.cached for usage in usages),
        )

    def write(self) -> RolloutResult:
        """Write `result.json` and `timing.json` and return the result; a failure to write them becomes its error."""
        if self._trajectory is not None and self._trajectory.n_dropped and not self.is_written:
            n_dropped, limit = self._trajectory.n_dropped, MAX_TRAJECTORY >> 20
            self.notes.append(f"the trajectory is cut at {limit} MB: {n_dropped} events of the agent's are left out")
        result = self.result()
        self.is_written = True
        try:
            if self._trajectory is not None:
                self._trajectory.close()
            if self.directory is not None:
                write_json(self.directory / "timing.json", {**_stages(result.timing), **result.timing})
                self._write_reward_events()
                write_json(self.directory / "result.json", result.model_dump(mode="json"))
        except OSError as error:
            if self.error is None:
                self.add_error(error)
            return self.result()
        return result

    def _write_reward_events(self) -> None:
        """Write `rewards.jsonl`, if the verifier gave a reward."""
        assert self.directory is not None
        lines = [event_line(event, step=step) for step, events in self._reward_events() for event in events]
        if lines:
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            write_text(self.directory / "rewards.jsonl", text)

    def write_sandbox(self, sandbox: Sandbox) -> None:
        """Write `sandbox.json`, so that what a killed run leaves can be found."""
        assert self.directory is not None  # setup() made it
        facts = {"sandbox": self.sandbox, "id": sandbox.id, "workdir": sandbox.workdir}
        write_json(self.directory / "sandbox.json", {**facts, "notes": [*sandbox.notes]})

    def mask_secrets(self) -> None:
        """Look once more for secrets in everything that was written, and mask them."""
        if self.directory is not None and (files := self.redactor.scrub(self.directory)):
            more = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
            self.notes.append(f"a secret was masked in {', '.join(files[:_SHOWN_FILES])}{more}")

    def _opt_outs(self) -> list[str]:
        """Return the defences that any step opted out of."""
        steps = self.task.steps
        return list(dict.fromkeys(key for step in steps for key in step.verifier.hardening.opt_outs))

    def _rewards(self) -> dict[str, float] | None:
        steps = [step.verification.rewards for step in self.verified_steps.values()]
        return combine_steps(steps, self.task.config.multi_step_reward_strategy) if steps else None

    def _criteria(self) -> list[CriterionScore]:
        """Return the criteria of the step that was verified last."""
        verifications = [step.verification for step in self.verified_steps.values()]
        return [*map(self._redacted, verifications[-1].criteria)] if verifications else []

    def _redacted(self, criterion: CriterionScore) -> CriterionScore:
        redact = self.redactor.text
        return replace(criterion, name=redact(criterion.name), reason=redact(criterion.reason))

    def _judge(self) -> JudgeRecord | None:
        record = combined(self.judge_records)
        return record and replace(record, warnings=tuple(map(self.redactor.text, record.warnings)))

    def _reward_events(self) -> list[tuple[str | None, list[RewardEvent]]]:
        """Return the signals of every verified step, with the step's name; the time of each is kept."""
        if self.error is not None or self.is_cancelled:
            return []
        redact = self.redactor.text
        return [
            (name, [replace(event, source=redact(event.source)) for event in step.reward_events])
            for name, step in self.verified_steps.items()
        ]

    def _check_summary(self) -> CheckSummary | None:
        """Return the named checks of the step that was verified last."""
        verifications = [step.verification for step in self.verified_steps.values()]
        checks = verifications[-1].checks if verifications else None
        if checks is None:
            return None
        failing = [*map(self.redactor.text, checks.failed)]
        return CheckSummary(passed=len(checks.passed), failed=len(checks.failed), failing=failing)


def _redacted(error: ErrorInfo, redact: Callable[[str], str]) -> ErrorInfo:
    advice = error.advice and redact(error.advice)
    return error.model_copy(update={"message": redact(error.message), "advice": advice})


def _frame_entry(change: FileChange) -> FrameEntry:
    return FrameEntry(path=change.path.encode("utf-8", "replace").decode(), change=change.kind)


def _stages(timing: Mapping[str, float]) -> dict[str, float]:
    """Return the times of older releases' keys, each the sum of some phases; those that did not run are left out."""
    return {
        stage: round(sum(timing.get(phase, 0.0) for phase in phases), 4)
        for stage, phases in _STAGES.items()
        if any(phase in timing for phase in phases)
    }


def _total(numbers: Iterable[N | None]) -> N | None:
    """Add the numbers that are known; None if none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
