"""A job: a directory of rollouts that belongs to one run, what is done in it, and what is tried again.

pytest's run loop and `Evaluation` both drive one of these; neither keeps a record of its own.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.core.activity import on_activity
from pytest_benchflow.core.errors import BadValue, BenchflowError, CannotRunHere, HeldBack, UsageError
from pytest_benchflow.core.text import one_line
from pytest_benchflow.jobs.ledger import JobEvent, Ledger
from pytest_benchflow.jobs.model_limits import ModelLimits
from pytest_benchflow.jobs.results import (
    CONFIG,
    RESULT,
    StoredFacts,
    latest_attempts,
    not_started,
    read_results,
    results_in,
    stored_facts,
)
from pytest_benchflow.jobs.retry import RetryConfig
from pytest_benchflow.jobs.score_index import ScoreIndex
from pytest_benchflow.rollout import Attempt, ErrorInfo, Rollout, prepare_rollout
from pytest_benchflow.tasks import stamp_tree

if TYPE_CHECKING:
    from pytest_benchflow.rollout import OnPhase, Resources, RolloutConfig, RolloutResult
    from pytest_benchflow.tasks import Task

MARKER = "job.json"
LOST_WORKERS = ".lost-workers"
"""Is in the directory of a job once a process has died that ran rollouts of it, and others go on."""
SLOTS = ".slots"
"""Is in the directory of a job whose processes share what its models may do at once."""
DEFAULT_RETRIES = 1
_LOOK_SEC = 0.2
_ADVICE = "choose another job name, or keep its scores all the same with --bf-resume-anyway"
_SHOWN_VALUE = 60
_ASK_AGAIN_SEC = 0.25


class ResumeMismatch(BadValue):
    """A job has results that this run would not give."""


def retry_policy(retry: Mapping[str, object] | None, max_retries: int | None) -> RetryConfig:
    """Return how failures are retried: as the `retry:` of a file says, and as often as an option asks for."""
    policy = RetryConfig.from_mapping({"max_retries": DEFAULT_RETRIES, **(retry or {})})
    return policy if max_retries is None else replace(policy, max_retries=max_retries)


class StartRule(Protocol):
    """Decides, from what has happened in the job, whether a rollout may still start; asked just before it does."""

    def learn(self, event: JobEvent) -> None:
        """Take an event of the job's ledger, of whichever process of the run."""

    def refusal(self, config: RolloutConfig) -> BenchflowError | CannotRunHere | None:
        """Return why a rollout is not to start: an error of it, or a reason to skip it; None if it may."""


@runtime_checkable
class WaitingRule(Protocol):
    """A `StartRule` that may want to see first what becomes of the rollouts under way."""

    def must_wait(self, config: RolloutConfig) -> bool:
        """Return whether a rollout is to wait, and to ask again."""


class Job:
    """The rollouts of one run."""

    def __init__(
        self,
        directory: Path,
        retry: RetryConfig | None = None,
        *,
        is_resumed: bool = False,
        takes_others: bool = False,
    ) -> None:
        self.directory = directory
        self.retry = retry or RetryConfig()
        self.is_resumed = is_resumed
        self.takes_others = takes_others
        """Whether scores of other agents, models, tasks and settings are kept too."""
        self.ledger = Ledger(directory)
        self.scores = ScoreIndex(directory)
        self.limits = ModelLimits(None)
        self.rules: list[StartRule] = [self.limits]
        self._lock: int | None = None
        self._unlisten: Callable[[], None] | None = None

    def finished(self, config: RolloutConfig, task: Task) -> RolloutResult | None:
        """Return the score that an earlier run of this job gave a rollout; one of something else is refused."""
        if not self.is_resumed:
            return None
        stamp = stamp_tree(str(task.path), task.file.name, settled=True)
        result = self._score_of(config, task)
        if result is None:
            return None
        kept = self._kept(result, config, task)
        if kept is result:
            self.scores.add(result, config, task, stamp)  # the next time, nothing has to be read
        self.ledger.append(JobEvent.of_result("end", kept, reused=True))
        return kept

    def unchanged(self, key: str, settings: str, task_file: str) -> RolloutResult | None:
        """Return what `finished` would, by the index of scores alone; None if that does not tell.

        `settings` is the fingerprint of the rollout's configuration, by this job's index.
        """
        result = self.scores.score(key, settings, task_file) if self.is_resumed else None
        if result is not None:
            self.ledger.append(JobEvent.of_result("end", result, reused=True))
        return result

    def recovered(self, config: RolloutConfig, task: Task) -> RolloutResult | None:
        """Return the score that a process of this run gave a rollout before it died and could tell anybody."""
        return self._score_of(config, task) if (self.directory / LOST_WORKERS).exists() else None

    def _score_of(self, config: RolloutConfig, task: Task) -> RolloutResult | None:
        attempts = results_in(directory / RESULT for directory in self._directories(config, task))
        found = latest_attempts(result for result in attempts.results if result.key == config.key)
        return next((result for result in found if result.reward is not None), None)

    def last_result(self, config: RolloutConfig, task: Task) -> RolloutResult | None:
        """Return what the latest attempt at a rollout has left, whatever came of it."""
        found = results_in(directory / RESULT for directory in self._directories(config, task)).results
        return found[-1] if found else None

    def note_lost_worker(self) -> None:
        """Tell the processes of this run that one of them has died, so that they look for what it has left."""
        (self.directory / LOST_WORKERS).touch()

    def result_of(self, rollout: str) -> RolloutResult | None:
        """Return the score in the directory of a rollout."""
        found = results_in([self.directory / rollout / RESULT]).results
        return found[0] if found and found[0].reward is not None else None

    def scored(self) -> list[RolloutResult]:
        """Return all scores of the job."""
        return [each for each in latest_attempts(read_results(self.directory).results) if each.reward is not None]

    async def run(
        self,
        config: RolloutConfig,
        task: Task,
        resources: Resources,
        on_phase: OnPhase | None = None,
        *,
        rerun_of: RolloutResult | None = None,
    ) -> RolloutResult:
        """Run a rollout, and again while the harness fails and retries are left; each attempt has its directory.

        One that a rule refuses does not start: its result says why. The result it was to replace, if it is the rerun of
        one, stays; what that has cost counts in any case.
        """
        if (reason := await self._refusal_in_time(config)) is not None:
            if rerun_of is not None:
                return rerun_of
            refused = _unstarted(config, task, reason)
            self.ledger.append(JobEvent.of_result("end", refused, refused=True))
            return refused
        attempts = self._earlier_attempts(config, task) if rerun_of is None else _attempts_of(rerun_of)
        notes: list[str] = []
        for attempt in count(1):
            rollout = Rollout(self.place(config), resources, task, on_phase=self._noting_phases(on_phase))
            rollout.recorder.attempts += attempts
            rollout.recorder.notes += notes
            self.ledger.append(JobEvent.of_config("start", config, task.name, attempt))
            try:
                result = await rollout.run()
            except BaseException:
                self.ledger.append(JobEvent.of_result("end", rollout.result, attempt=attempt))
                raise
            if result.error is None or not self._may_retry(result, config, attempt):
                version = rollout.recorder.version
                self.scores.add(result, config, task, None if version is None else version.stamp)
                self.ledger.append(JobEvent.of_result("end", result, attempt=attempt))
                return result
            self.ledger.append(JobEvent.of_result("retry", result, attempt=attempt))
            attempts.append(result.as_attempt())
            error = result.error
            notes.append(f"attempt {attempt}: {error.category} error in {error.phase}: {one_line(error.message)}")
            try:
                await asyncio.sleep(self.retry.delay(attempt))
                await self._room_for(config)
            except BaseException:
                self.ledger.append(JobEvent.of_result("end", result, attempt=attempt))
                raise
        raise AssertionError("unreachable")

    async def run_unqueued(
        self,
        config: RolloutConfig,
        task: Task,
        resources: Resources,
        on_phase: OnPhase | None = None,
        *,
        rerun_of: RolloutResult | None = None,
    ) -> RolloutResult:
        """Do here what an engine's queue does for others: build first, wait for the model's permission, and run."""
        await prepare_rollout(config, task, resources)
        while (release := self.permit(config)) is None:  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(_ASK_AGAIN_SEC)
        try:
            return await self.run(config, task, resources, on_phase, rerun_of=rerun_of)
        finally:
            release()

    @property
    def slots(self) -> Path:
        """Where the processes of a run share what they may do at once."""
        return self.directory / SLOTS

    def limit_models(self, most: int | None, *, is_shared: bool) -> None:
        """Let so many rollouts use a model at once, in this process or, if they are to share, in all of the run."""
        self.rules.remove(self.limits)
        self.limits = ModelLimits(most, shared=self.slots if is_shared else None)
        self.rules.insert(0, self.limits)

    def permit(self, config: RolloutConfig) -> Callable[[], None] | None:
        """Return what is called when a rollout has ended; None if its model cannot take it yet."""
        self._learn()
        return self.limits.permit(config.primary_model or config.primary_agent)

    def _may_retry(self, result: RolloutResult, config: RolloutConfig, attempt: int) -> bool:
        return self.retry.should_retry(result, attempt) and self._refusal(config) is None

    async def _room_for(self, config: RolloutConfig) -> None:
        """Wait while the provider of a model limits its rate, so that another attempt does not add to the load."""
        self._learn()
        while not self.limits.may_try_again(config.primary_model or config.primary_agent):
            await asyncio.sleep(_LOOK_SEC)
            self._learn()

    async def _refusal_in_time(self, config: RolloutConfig) -> BenchflowError | CannotRunHere | None:
        """Return why a rollout is not to start; wait as long as what is under way may still decide that.

        Other processes tell only through the ledger, hence the look at it every now and then.
        """
        while (reason := self._refusal(config)) is None and any(  # noqa: ASYNC110
            rule.must_wait(config) for rule in self.rules if isinstance(rule, WaitingRule)
        ):
            await asyncio.sleep(_LOOK_SEC)
        return reason

    def _refusal(self, config: RolloutConfig) -> BenchflowError | CannotRunHere | None:
        """Return why no rollout of this kind is to start any more, if a rule says so."""
        self._learn()
        return next((reason for rule in self.rules if (reason := rule.refusal(config)) is not None), None)

    def _learn(self) -> None:
        """Let the rules know what has happened in the job since they were asked last."""
        for event in self.ledger.news():
            for rule in self.rules:
                rule.learn(event)

    def _directories(self, config: RolloutConfig, task: Task) -> Iterator[Path]:
        """Yield the directories of all attempts at a rollout so far."""
        config = self.place(config)
        here = config.jobs_dir / str(config.job_name)
        directories = (here / config.name_for(task.short_name, attempt) for attempt in count(1))
        return takewhile(Path.is_dir, directories)

    def _earlier_attempts(self, config: RolloutConfig, task: Task) -> list[Attempt]:
        """Return what earlier runs of the job have tried in vain: it was paid for."""
        if not self.is_resumed:
            return []
        is_free = config.primary_agent in FREE_AGENTS
        return [_attempt_in(directory, is_free=is_free) for directory in self._directories(config, task)]

    def listen(self) -> None:
        """Note in the ledger what rollouts wait for in this process, until the job is closed."""
        if self._unlisten is None:
            self._unlisten = on_activity(self._note_activity)

    def _note_activity(self, what: str, begins: bool) -> None:
        phase = "begin" if begins else "end"
        self.ledger.append(JobEvent(kind="work", ts=round(time.time(), 3), phase=phase, message=what))

    def _noting_phases(self, on_phase: OnPhase | None) -> OnPhase:
        async def note(rollout: Rollout, phase: str) -> None:
            event = JobEvent(
                kind="phase",
                ts=round(time.time(), 3),
                key=rollout.config.key,
                rollout=rollout.recorder.name,
                phase=phase,
            )
            self.ledger.append(event)
            if on_phase is not None:
                await on_phase(rollout, phase)

        return note

    def place(self, config: RolloutConfig) -> RolloutConfig:
        """Return a configuration whose results go into this job, unless it names a job of its own."""
        return (
            config if config.job_name else replace(config, jobs_dir=self.directory.parent, job_name=self.directory.name)
        )

    def check_earlier(self, played: Collection[tuple[str, str | None]], keys: Callable[[str], bool]) -> Collection[str]:
        """Return under which keys the job has scores; refuse those of agents and models which this run does not have.

        Only results under the `keys` that this run would use are looked at.
        """
        scored: set[str] = set()
        for stored in stored_facts(self.directory, self.scores.facts) if self.is_resumed else ():
            if (stored.agent, stored.model) not in played and keys(stored.key) and not self.takes_others:
                raise ResumeMismatch(f"{self.directory} has results of {_who(stored)}", advice=_ADVICE)
            if stored.is_scored:
                scored.add(stored.key)
        return scored

    def check_settings(self, settings: Mapping[str, object]) -> None:
        """Refuse to continue a job with other settings than it was begun with, before anything starts."""
        begun: object = _marker(self.directory).get("settings")
        changes = differences(begun, settings) if isinstance(begun, dict) and not self.takes_others else []
        if changes:
            raise ResumeMismatch(
                f"{self.directory} was begun with other settings: {', '.join(changes)}", advice=_ADVICE
            )

    def hold(self) -> None:
        """Keep the job to this process until it closes the job or dies."""
        if self._lock is not None:
            return
        descriptor = os.open(self.directory / MARKER, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            advice = "wait for it, or choose another job name"
            raise UsageError(f"{self.directory} is in use by another run", advice=advice) from None
        except OSError:  # a file system without locks: two runs of one job have to be kept apart by hand
            pass
        self._lock = descriptor

    def close(self) -> None:
        """Let others have the job; idempotent."""
        if self._lock is not None:
            self.ledger.finish()
        self.ledger.close()
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _kept(self, result: RolloutResult, config: RolloutConfig, task: Task) -> RolloutResult:
        """Return an earlier result, unless it is of something else than this run would do; that is refused or noted."""
        if (result.agent, result.model) != (config.primary_agent, config.primary_model):
            difference = f"results of {_who(result)}"
        elif result.task_digest != task.digest():
            difference = f"a result of another version of the task {task.name}"
        elif changes := differences(_stored_config(result), config.decisive()):
            difference = f"a result of {task.name} with other settings: {', '.join(changes)}"
        else:
            return result
        if not self.takes_others:
            raise ResumeMismatch(f"{self.directory} has {difference}", advice=_ADVICE)
        return result.model_copy(update={"notes": [*result.notes, f"kept from an earlier run: {difference}"]})


def differences(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return in which settings two configurations differ, as far as both have them, each with both values."""
    return [
        f"{name} was {_shown(before[name])} and is {_shown(value)}"
        for name, value in now.items()
        if name in before and before[name] != value and not (name == "sandbox" and value == "auto")
    ]


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…"


def _stored_config(result: RolloutResult) -> dict[str, object]:
    """Return the configuration that a result came of, as far as it can still be read."""
    try:
        assert result.rollout_dir is not None
        stored: object = json.loads((result.rollout_dir / CONFIG).read_bytes())
    except (OSError, ValueError, AssertionError):
        return {}
    return stored if isinstance(stored, dict) else {}


def open_job(
    jobs_dir: Path,
    name: str,
    run_id: str,
    *,
    exact: bool,
    resume: bool = False,
    takes_others: bool = False,
    retry: RetryConfig | None = None,
    settings: Mapping[str, object] | None = None,
) -> Job:
    """Return the job of this name: a new one of the run `run_id`, or an earlier one that is to be continued.

    `settings` are what all its rollouts have in common; a job that was begun with others is refused.
    """
    if resume and owner_of(jobs_dir / name) is not None:
        job = Job(jobs_dir / name, retry, is_resumed=True, takes_others=takes_others)
        job.check_settings(settings or {})
    else:
        job = Job(claim_job_directory(jobs_dir, name, run_id, exact=exact, settings=settings), retry)
    job.listen()
    return job


def job_names(jobs_dir: Path) -> list[str]:
    """Return the names of the jobs in a directory, the newest first."""
    markers = sorted(jobs_dir.glob(f"*/{MARKER}"), key=lambda marker: marker.stat().st_mtime_ns, reverse=True)
    return [marker.parent.name for marker in markers]


def newest_job(jobs_dir: Path) -> str:
    """Return the name of the job that was started last."""
    names = job_names(jobs_dir)
    if not names:
        raise UsageError(f"there is no job in {jobs_dir} to resume", advice="run it without resume first")
    return names[0]


def owner_of(directory: Path) -> str | None:
    """Return the id of the run that made a job, None if there is no job in this directory."""
    run = _marker(directory).get("run")
    return run if isinstance(run, str) else None


def _marker(directory: Path) -> dict[str, object]:
    try:
        data: object = json.loads((directory / MARKER).read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def claim_job_directory(
    jobs_dir: Path, name: str, run_id: str, *, exact: bool, settings: Mapping[str, object] | None = None
) -> Path:
    """Make or join the directory of the run `run_id`; a name that another run took is refused if `exact`, else varied.

    Every process of a run finds the same directory, because the marker in it names the run that it belongs to.
    """
    for number in count(1):
        directory = jobs_dir / (name if number == 1 else f"{name}-{number}")
        try:
            is_ours = _mark(directory, run_id, settings)
        except OSError as error:
            advice = "choose another --bf-jobs-dir"
            raise UsageError(f"{directory} cannot be made: {error.strerror}", advice=advice) from None
        if is_ours:
            return directory
        if exact:
            advice = "choose another --bf-job-name, remove it, or continue it with --bf-resume"
            raise UsageError(f"{directory} exists already", advice=advice)
    raise AssertionError("unreachable")


def _mark(directory: Path, run_id: str, settings: Mapping[str, object] | None) -> bool:
    """Write the marker of a run into a directory; tell whether the directory is that run's."""
    directory.mkdir(parents=True, exist_ok=True)
    marker = directory / MARKER
    if not marker.exists() and any(MARKER not in path.name for path in directory.iterdir()):
        return False  # somebody's own directory
    draft = directory / f".{MARKER}.{os.getpid()}"
    common = {name: value for name, value in (settings or {}).items() if name != "scenes"}  # agents are no settings
    draft.write_text(json.dumps({"run": run_id, "created": time.time(), "settings": common}))
    try:
        os.link(draft, marker)
    except FileExistsError:
        return owner_of(directory) == run_id
    finally:
        draft.unlink()
    return True


def _attempt_in(directory: Path, *, is_free: bool) -> Attempt:
    stored = results_in([directory / RESULT]).results
    if stored:
        return stored[0].as_attempt("cancelled" if stored[0].cancelled else "error")
    has_asked = (directory / "prompts.json").exists() and not is_free
    return Attempt(rollout_name=directory.name, status="killed", cost_is_partial=has_asked)


def _attempts_of(result: RolloutResult) -> list[Attempt]:
    if not result.rollout_name:  # it never started
        return result.attempts
    status: Literal["error", "scored"] = "error" if result.reward is None else "scored"
    return [*result.attempts, result.as_attempt(status)]


def _unstarted(config: RolloutConfig, task: Task, reason: BenchflowError | CannotRunHere) -> RolloutResult:
    labels = {"difficulty": task.difficulty, "category": task.category, "tags": [*task.tags]}
    if isinstance(reason, CannotRunHere):
        kind = reason.kind if isinstance(reason, HeldBack) else None
        result = not_started(config, name=task.name, skipped=str(reason), notes=[str(reason)])
        return result.model_copy(update={**labels, "held_back": kind})
    result = not_started(config, name=task.name, error=ErrorInfo.of(reason, "create"), notes=[str(reason)])
    return result.model_copy(update=labels)


def _who(result: RolloutResult | StoredFacts) -> str:
    return result.agent + (f" with {result.model}" if result.model else "")
