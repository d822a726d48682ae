"""Evaluations: one agent on every task of a folder, from plain Python or a job file, and what came of it."""

from __future__ import annotations

import asyncio
import inspect
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.core.errors import BadValue, BenchflowError
from pytest_benchflow.core.files import cache_directory
from pytest_benchflow.jobs.job import MARKER, claim_job_directory
from pytest_benchflow.jobs.metrics import BenchmarkMetrics, mean
from pytest_benchflow.jobs.results import latest_attempts, outcome_class, read_results
from pytest_benchflow.jobs.retry import RetryConfig
from pytest_benchflow.rollout import (
    ErrorInfo,
    Resources,
    Rollout,
    RolloutConfig,
    RolloutFile,
    RolloutResult,
    Scene,
    load_rollout_file,
    make_config,
    utc_now,
    write_json,
)
from pytest_benchflow.sandboxes import SandboxRegistry
from pytest_benchflow.tasks import fetch_source, find_tasks, load_task

DEFAULT_AGENT = "claude-agent-acp"
DEFAULT_CONCURRENCY = 4

#: Settings that every rollout gets under the same name, where they are given.
_OF_ROLLOUTS = (
    "agent",
    "model",
    "reasoning_effort",
    "prompts",
    "scenes",
    "sandbox",
    "sandbox_setup_timeout",
    "threshold",
    "timeout",
    "agent_idle_timeout",
    "agent_env",
    "skills_dir",
    "skill_mode",
    "loop_strategy",
    "context_root",
    "base_image_override",
)


@dataclass(frozen=True)
class EvaluationConfig:
    """How an evaluation runs; None leaves a setting as it is for a single rollout."""

    agent: str = DEFAULT_AGENT
    model: str | None = None
    concurrency: int = DEFAULT_CONCURRENCY
    prompts: Sequence[str | None] | str | None = None
    agent_env: Mapping[str, str] | None = None
    retry: RetryConfig = field(default_factory=RetryConfig)
    reasoning_effort: str | None = None
    scenes: Sequence[Scene] | None = None
    trials: int = 1
    sandbox: str | None = None
    sandbox_user: str | None = "agent"
    sandbox_setup_timeout: float | None = None
    threshold: float | None = None
    timeout: float | None = None
    agent_idle_timeout: float | None = None
    skills_dir: str | Path | None = None
    skill_mode: str | None = None
    loop_strategy: str | None = None
    context_root: str | Path | None = None
    base_image_override: str | None = None
    include_tasks: Collection[str] = ()
    """Names of tasks to run, with * and ?; none at all means every one."""
    exclude_tasks: Collection[str] = ()
    file: RolloutFile | None = None
    """The job file that says everything about the rollouts, instead of the settings above."""
    environment: InitVar[str | None] = None
    """What `sandbox` was called in older releases."""

    def __post_init__(self, environment: str | None) -> None:
        if environment is not None:
            object.__setattr__(self, "sandbox", environment)
        if self.trials < 1:
            raise BadValue(f"trials is {self.trials}", advice="give a number from 1 up")

    @classmethod
    def of_file(cls, file: RolloutFile) -> EvaluationConfig:
        """Return what a job file says."""
        if len(file.agents) > 1:
            names = ", ".join(agent.name for agent in file.agents)
            advice = "keep one of them, or run the file with pytest --bf-config"
            raise BadValue(f"{file.path} names the agents {names}", advice=advice)
        first = file.config(Path()).effective_scenes[0].roles[0]
        return cls(
            agent=first.agent,
            model=first.model,
            concurrency=file.concurrency or DEFAULT_CONCURRENCY,
            retry=RetryConfig.from_mapping(file.retry),
            trials=file.trials or 1,
            include_tasks=file.include,
            exclude_tasks=file.exclude,
            file=file,
        )

    def wants(self, name: str, short: str) -> bool:
        """Tell whether a task is to run, by its path below the folder or the name of its directory."""

        def listed(patterns: Collection[str]) -> bool:
            return any(fnmatchcase(name, pattern) or fnmatchcase(short, pattern) for pattern in patterns)

        return (not self.include_tasks or listed(self.include_tasks)) and not listed(self.exclude_tasks)

    def rollout(self, task: Path, *, trial: int, job: Path, key: str) -> RolloutConfig:
        """Return the configuration of the rollout on one task, with its results below the directory `job`."""
        if self.file is not None:
            given = self.file.config(task)
        else:
            fields = {name: getattr(self, name) for name in _OF_ROLLOUTS}
            given = make_config({**fields, "task_path": task, "sandbox_user": self.sandbox_user})
        return replace(given, trial=trial, jobs_dir=job.parent, job_name=job.name, key=key)


SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """One rollout that did not pass."""

    task_name: str
    rewards: Mapping[str, float] | None = None
    error: str | None = None
    verifier_error: str | None = None
    rollout_name: str | None = None


@dataclass(frozen=True)
class EvaluationResult:
    """The results by task name, and what they add up to."""

    job_name: str
    config: EvaluationConfig
    results: Mapping[str, RolloutResult]
    elapsed_sec: float
    job_dir: Path

    @property
    def total(self) -> int:
        """How many rollouts there are; the buckets add up to it."""
        return len(self.results)

    @property
    def passed(self) -> int:
        """Rewards that reach the threshold."""
        return self._count("passed")

    @property
    def failed(self) -> int:
        """Rewards that do not."""
        return self._count("failed")

    @property
    def errored(self) -> int:
        """No reward, for a reason outside the verifier."""
        return self._count("errored")

    @property
    def verifier_errored(self) -> int:
        """No reward, because the verifier gave none."""
        return self._count("verifier_errored")

    @property
    def skipped(self) -> int:
        """Rollouts that make no sense here."""
        return self._count("skipped")

    @property
    def score(self) -> float:
        """Passed of all."""
        return self.passed / self.total if self.total else 0.0

    @property
    def score_excl_errors(self) -> float:
        """Passed of those that were scored."""
        scored = self.passed + self.failed
        return self.passed / scored if scored else 0.0

    @property
    def mean_reward(self) -> float | None:
        """The mean over what was scored."""
        return mean([result.reward for result in self.results.values() if result.reward is not None])

    @property
    def task_failures(self) -> list[TaskFailure]:
        """Every rollout that ran and did not pass."""
        return [
            TaskFailure(
                name,
                result.rewards,
                None if result.error is None or result.verifier_error else result.error.message,
                result.verifier_error,
                result.rollout_name,
            )
            for name, result in self.results.items()
            if outcome_class(result) not in ("passed", "skipped")
        ]

    @property
    def metrics(self) -> BenchmarkMetrics:
        """Everything that can be counted."""
        agent, model = self.config.agent, self.config.model or ""
        return BenchmarkMetrics(tuple(self.results.values()), self.job_name, agent, model)

    def write(self) -> None:
        """Write `summary.json` into the job's directory."""
        head = {"job_name": self.job_name, "elapsed_sec": round(self.elapsed_sec, 1)}
        write_json(self.job_dir / SUMMARY, {**head, **self.metrics.summary()})

    def _count(self, name: str) -> int:
        return sum(outcome_class(result) == name for result in self.results.values())


OnResult: TypeAlias = "Callable[[str, RolloutResult], Awaitable[None] | None]"
_LOCK = ".evaluation.lock"


class ResumeMismatch(BadValue):
    """A job holds results that this evaluation would not give."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """One rollout, under the name it has in the results."""

    name: str
    config: RolloutConfig

    @property
    def identity(self) -> tuple[str, int]:
        """Say which task and trial it is, as stored results do."""
        return str(self.config.task_path.absolute()), self.config.trial


class Evaluation:
    """Run an agent on the tasks below a folder; giving the name of an earlier job continues that job."""

    def __init__(
        self,
        tasks_dir: Path | str | Iterable[Path | str],
        jobs_dir: Path | str = "jobs",
        config: EvaluationConfig | None = None,
        job_name: str | None = None,
        on_result: OnResult | None = None,
        *,
        agents: AgentRegistry | None = None,
        sandboxes: SandboxRegistry | None = None,
    ) -> None:
        given = [tasks_dir] if isinstance(tasks_dir, str | Path) else [*tasks_dir]
        self.tasks_dirs = tuple(Path(directory) for directory in given)
        self.jobs_dir = Path(jobs_dir)
        self.config = config or EvaluationConfig()
        self.job_name = job_name
        self.on_result = on_result
        self._agents = agents
        self._sandboxes = sandboxes
        self.notes: tuple[str, ...] = ()

    @classmethod
    def from_yaml(
        cls, path: Path | str, *, job_name: str | None = None, on_result: OnResult | None = None
    ) -> Evaluation:
        """Return the evaluation that a job file of any dialect describes."""
        file = load_rollout_file(path)
        config = EvaluationConfig.of_file(file)
        evaluation = cls(_tasks_of(file), file.jobs_dir or "jobs", config, job_name or file.job_name, on_result)
        evaluation.notes = tuple(map(str, file.warnings))
        return evaluation

    async def run(self) -> EvaluationResult:
        """Run what is not done yet, and return the result of all of it."""
        began = time.monotonic()
        tasks = self._tasks()
        registry = self._registry()
        directory = self._directory()
        with _held(directory):
            cells = [*self._cells(tasks, directory)]
            results = self._done(directory, cells)
            resources = Resources(registry, self._sandboxes or SandboxRegistry())
            try:
                await self._run_all([cell for cell in cells if cell.name not in results], resources, results)
            finally:
                await resources.aclose()
            in_order = {cell.name: results[cell.name] for cell in cells}
            result = EvaluationResult(directory.name, self.config, in_order, time.monotonic() - began, directory)
            result.write()
        return result

    def _tasks(self) -> dict[str, Path]:
        found = {_name(directory, task): task for directory in self.tasks_dirs for task in find_tasks(directory)}
        if not found:
            where = ", ".join(map(str, self.tasks_dirs))
            raise BadValue(f"there is no task in {where}", advice="name a task, or a folder that holds some")
        chosen = {name: task for name, task in found.items() if self.config.wants(name, task.name)}
        if not chosen:
            raise BadValue(f"none of {len(found)} tasks is left", advice="change include_tasks and exclude_tasks")
        return chosen

    def _cells(self, tasks: dict[str, Path], job: Path) -> Iterator[_Cell]:
        for name, task in tasks.items():
            for trial in range(1, self.config.trials + 1):
                key = name if self.config.trials == 1 else f"{name}/{trial}"
                yield _Cell(key, self.config.rollout(task, trial=trial, job=job, key=key))

    def _registry(self) -> AgentRegistry:
        registry = self._agents
        if registry is None:
            registry = AgentRegistry()
            registry.load_entry_points()
        some = self.config.rollout(Path(), trial=1, job=self.jobs_dir, key="")
        for role in (role for scene in some.effective_scenes for role in scene.roles):
            registry.get(role.agent)  # one that nobody knows is told before anything starts
        return registry

    def _directory(self) -> Path:
        if self.job_name is not None and (self.jobs_dir / self.job_name / MARKER).exists():
            return self.jobs_dir / self.job_name
        name = self.job_name or time.strftime("%Y-%m-%d__%H-%M-%S")
        return claim_job_directory(self.jobs_dir, name, uuid.uuid4().hex, exact=self.job_name is not None)

    def _done(self, directory: Path, cells: Iterable[_Cell]) -> dict[str, RolloutResult]:
        """Return what an earlier run of the job has scored; what this run would not give is refused."""
        wanted = {cell.identity: cell for cell in cells}
        done: dict[str, RolloutResult] = {}
        for result in latest_attempts(read_results(directory).results):
            cell = wanted.get((result.task_path, result.trial))
            if cell is not None and result.reward is not None:
                _refuse_mismatch(directory, cell, result)
                done[cell.name] = result
        return done

    async def _run_all(self, cells: Iterable[_Cell], resources: Resources, results: dict[str, RolloutResult]) -> None:
        places = asyncio.Semaphore(max(1, self.config.concurrency))

        async def one(cell: _Cell) -> None:
            async with places:
                results[cell.name] = result = await self._run_one(cell.config, resources)
            if self.on_result is not None:
                said = self.on_result(cell.name, result)
                if inspect.isawaitable(said):
                    await said

        try:
            async with asyncio.TaskGroup() as group:
                for cell in cells:
                    group.create_task(one(cell))
        except BaseExceptionGroup as raised:
            raise raised.exceptions[0] from None  # the callback's own error, as it was raised

    async def _run_one(self, config: RolloutConfig, resources: Resources) -> RolloutResult:
        retry, attempt = self.config.retry, 1
        while True:
            result = await _attempt(config, resources)
            if not retry.should_retry(result, attempt):
                return result
            await asyncio.sleep(retry.delay(attempt))
            attempt += 1


async def _attempt(config: RolloutConfig, resources: Resources) -> RolloutResult:
    started_at = utc_now()
    try:
        rollout = await Rollout.create(config, resources)
    except BenchflowError as error:  # a broken task is one error among the results
        return RolloutResult(
            task_name=config.task_path.name,
            task_path=str(config.task_path.absolute()),
            rollout_name=config.name_for(config.task_path.name),
            agent=config.agent,
            model=config.model,
            trial=config.trial,
            sandbox=config.sandbox,
            threshold=config.threshold,
            error=ErrorInfo.of(error, "create"),
            started_at=started_at,
            finished_at=utc_now(),
        )
    return await rollout.run()


def _refuse_mismatch(directory: Path, cell: _Cell, result: RolloutResult) -> None:
    first = cell.config.effective_scenes[0].roles[0]
    if (result.agent, result.model) != (first.agent, first.model):
        told = f"results of {result.agent}" + (f" with {result.model}" if result.model else "")
    elif result.task_digest != load_task(cell.config.task_path).digest():
        told = f"a result of another version of the task {cell.name}"
    else:
        return
    raise ResumeMismatch(f"{directory} holds {told}", advice="choose another job_name")


def _tasks_of(file: RolloutFile) -> tuple[Path, ...]:
    if file.source is not None:
        return (fetch_source(file.source, cache_directory() / "sources").path,)
    if not file.tasks:
        raise BadValue(f"{file.path} names no tasks", advice="add tasks: or source:")
    return file.tasks


def _name(directory: Path, task: Path) -> str:
    return task.name if task == directory else task.relative_to(directory).as_posix()


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Keep the job to this process while it runs."""
    from filelock import FileLock, Timeout

    lock = FileLock(directory / _LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BadValue(
            f"{directory} is in use by another run", advice="wait for it, or choose another job_name"
        ) from None
    try:
        yield
    finally:
        lock.release()
        (directory / _LOCK).unlink(missing_ok=True)
