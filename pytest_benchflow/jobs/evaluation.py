"""Evaluations: one agent on every task of a folder, from plain Python or a job file, and what came of it."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TypeAlias

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.configfile import TaskError
from pytest_benchflow.core.errors import BadValue, BenchflowError
from pytest_benchflow.core.files import cache_directory
from pytest_benchflow.jobs.breaker import DEFAULT_BREAKER, CircuitBreaker
from pytest_benchflow.jobs.budget import Budget, guess_by, require_prices
from pytest_benchflow.jobs.engine import Engine
from pytest_benchflow.jobs.gates import Gate, Labels, read_gates
from pytest_benchflow.jobs.job import Job, StartRule, open_job, owner_of, retry_policy
from pytest_benchflow.jobs.ledger import JobEvent
from pytest_benchflow.jobs.metrics import BenchmarkMetrics, Tally
from pytest_benchflow.jobs.results import not_started, outcome_class
from pytest_benchflow.jobs.retry import RetryConfig
from pytest_benchflow.jobs.schedule import Durations, Expected, start_order
from pytest_benchflow.jobs.stopping import EarlyVerdict, Planned, StopWhenDecided, early_verdicts
from pytest_benchflow.providers import AUTO, Prices
from pytest_benchflow.rollout import (
    ErrorInfo,
    Resources,
    RolloutConfig,
    RolloutFile,
    RolloutResult,
    Scene,
    load_rollout_file,
    make_config,
    prepare_rollout,
    shared_settings,
    write_json,
)
from pytest_benchflow.sandboxes import SandboxRegistry
from pytest_benchflow.tasks import fetch_source, find_task_file, find_tasks, load_task

DEFAULT_AGENT = "claude-agent-acp"
DEFAULT_CONCURRENCY = 4


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
    breaker: int | None = DEFAULT_BREAKER
    """After how many tasks on which nothing but the same failure came of the agent or sandbox no more start."""
    gates: Sequence[str] = ()
    """What all results together have to reach, as `--bf-gate`; `EvaluationResult.verdicts` tells."""
    max_cost: float | None = None
    """Dollars that may be spent."""
    price: Sequence[str] | None = None
    """Prices of models, as `--bf-price`."""
    stop_when_decided: bool = False
    """Whether nothing more starts once the gates are decided."""
    confidence: float | None = None
    """To which level that has to be certain; None for wholly."""
    file: RolloutFile | None = None
    """The job file that says everything about the rollouts, instead of the settings above."""
    environment: InitVar[str | None] = None
    """What `sandbox` was called in older releases."""

    def __post_init__(self, environment: str | None) -> None:
        if environment is not None:
            object.__setattr__(self, "sandbox", environment)
        if self.trials < 1:
            raise BadValue(f"trials is {self.trials}", advice="give a number from 1 up")
        if self.confidence is not None and not 0 < self.confidence < 1:
            raise BadValue(f"confidence is {self.confidence}", advice="give a number above 0 and below 1")
        if (self.stop_when_decided or self.confidence is not None) and not self.gates:
            raise BadValue("there is no gate to decide", advice="add gates")
        for gate in self.parsed_gates:
            if gate.needs_baseline:
                raise BadValue(f"{gate} needs a baseline", advice="use pytest --bf-baseline, or bf merge --baseline")

    @classmethod
    def of_file(cls, file: RolloutFile, *, retries: int | None = None) -> EvaluationConfig:
        """Return what a job file says; `retries` are more to the point than its own."""
        if len(file.agents) > 1:
            names = ", ".join(agent.name for agent in file.agents)
            advice = "keep one of them, or run the file with pytest --bf-config"
            raise BadValue(f"{file.path} names the agents {names}", advice=advice)
        first = file.config(Path()).effective_scenes[0].roles[0]
        return cls(
            agent=first.agent,
            model=first.model,
            concurrency=file.concurrency or DEFAULT_CONCURRENCY,
            retry=retry_policy(file.retry, retries),
            trials=file.trials or 1,
            include_tasks=file.include,
            exclude_tasks=file.exclude,
            gates=file.gate or (),
            max_cost=file.max_cost,
            stop_when_decided=bool(file.stop_when_decided),
            confidence=file.confidence,
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
            config = self.file.config(task)
        else:
            config = make_config({**shared_settings(self), "task_path": task})
        if self._needs_costs and AUTO not in config.price:
            config = replace(config, price=(*config.price, AUTO))
        return replace(config, trial=trial, jobs_dir=job.parent, job_name=job.name, key=key)

    @property
    def parsed_gates(self) -> list[Gate]:
        """The gates."""
        return read_gates(self.gates, source="gate")

    @property
    def _needs_costs(self) -> bool:
        return self.max_cost is not None or any(gate.metric == "cost_usd" for gate in self.parsed_gates)


SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """One rollout that did not pass."""

    task_name: str
    rewards: Mapping[str, float] | None = None
    error: str | None = None
    verifier_error: str | None = None
    rollout_name: str | None = None


@dataclass(frozen=True, slots=True)
class NamedResult:
    """A result under its name in the evaluation."""

    id: str
    result: RolloutResult

    @property
    def status(self) -> str:
        """What it counts as."""
        return self.result.status


@dataclass(frozen=True)
class EvaluationResult:
    """The results by task name, and what they add up to."""

    job_name: str
    config: EvaluationConfig
    results: Mapping[str, RolloutResult] = field(repr=False)  # asyncio.run() makes a repr of what it returns
    elapsed_sec: float
    job_dir: Path

    @property
    def outcomes(self) -> list[NamedResult]:
        """The results with their names, in the order in which they were to start."""
        return [NamedResult(name, result) for name, result in self.results.items()]

    @property
    def early_verdicts(self) -> Mapping[Gate, EarlyVerdict]:
        """What sequential tests have decided."""
        level = self.config.confidence
        return {} if level is None else early_verdicts(self.config.parsed_gates, self.outcomes, level)

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
        return self._tally.pass_rate or 0.0

    @property
    def mean_reward(self) -> float | None:
        """The mean over what was scored."""
        return self._tally.mean_reward

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
        job = {"job_name": self.job_name, "elapsed_sec": round(self.elapsed_sec, 1)}
        write_json(self.job_dir / SUMMARY, {**job, **self.metrics.summary()})

    @property
    def _tally(self) -> Tally:
        return Tally.of([*self.results.values()])

    def _count(self, name: str) -> int:
        return sum(outcome_class(result) == name for result in self.results.values())


OnResult: TypeAlias = "Callable[[str, RolloutResult], Awaitable[None] | None]"


@dataclass(frozen=True, slots=True)
class _Cell:
    """One rollout, under the name it has in the results."""

    name: str
    task: Path
    trial: int


class Evaluation:
    """Run an agent on the tasks below a folder; giving the name of an earlier job continues it, unless told not to."""

    def __init__(
        self,
        tasks_dir: Path | str | Iterable[Path | str],
        jobs_dir: Path | str = "jobs",
        config: EvaluationConfig | None = None,
        job_name: str | None = None,
        on_result: OnResult | None = None,
        *,
        resume: bool = True,
        resume_anyway: bool = False,
        agents: AgentRegistry | None = None,
        sandboxes: SandboxRegistry | None = None,
    ) -> None:
        directories = [tasks_dir] if isinstance(tasks_dir, str | Path) else [*tasks_dir]
        self.tasks_dirs = tuple(Path(directory) for directory in directories)
        self.jobs_dir = Path(jobs_dir)
        self.config = config or EvaluationConfig()
        self.job_name = job_name
        self.resume = resume or resume_anyway
        self.resume_anyway = resume_anyway
        self.on_result = on_result
        self.suggested_name: str | None = None
        """The name that a job file gives, which is varied if it is taken and not to be continued."""
        self._agents = agents
        self._sandboxes = sandboxes
        self.notes: tuple[str, ...] = ()

    @classmethod
    def from_yaml(
        cls,
        path: Path | str,
        *,
        job_name: str | None = None,
        on_result: OnResult | None = None,
        resume: bool = True,
        resume_anyway: bool = False,
        retries: int | None = None,
    ) -> Evaluation:
        """Return the evaluation that a job file of any dialect describes."""
        file = load_rollout_file(path)
        config = EvaluationConfig.of_file(file, retries=retries)
        evaluation = cls(
            _tasks_of(file),
            file.jobs_dir or "jobs",
            config,
            job_name,
            on_result,
            resume=resume,
            resume_anyway=resume_anyway,
        )
        evaluation.notes = tuple(map(str, file.warnings))
        evaluation.suggested_name = file.job_name
        return evaluation

    async def run(self) -> EvaluationResult:
        """Run what is not done yet, and return the result of all of it."""
        began = time.monotonic()
        tasks = self._tasks()
        registry = self._registry()
        sandboxes = self._sandboxes or SandboxRegistry()
        sandboxes.resolve(self._some_config().sandbox)  # likewise
        job = self._open_job()
        if self.config.breaker is not None:
            job.rules.append(CircuitBreaker(self.config.breaker))
        job.hold()
        try:
            cells = [*self._cells(tasks)]
            if self.config.confidence is not None:  # an order that has nothing to do with outcomes
                random.Random(owner_of(job.directory)).shuffle(cells)  # noqa: S311
            job.rules += self._rules(job, cells)
            job.ledger.begin(len(cells))
            resources = Resources(registry, sandboxes, needs_prices=self.config.max_cost is not None)
            results = await self._run_all(job, cells, resources)
            in_order = {cell.name: results[cell.name] for cell in cells}
            elapsed = time.monotonic() - began
            result = EvaluationResult(job.directory.name, self.config, in_order, elapsed, job.directory)
            result.write()
        finally:
            job.close()
        return result

    def _rules(self, job: Job, cells: Sequence[_Cell]) -> Iterator[StartRule]:
        config = self.config
        if config.stop_when_decided or config.confidence is not None:
            rule = StopWhenDecided(config.parsed_gates, confidence=config.confidence)
            rule.begin([Planned(cell.name, _labels(self._config_of(cell, job))) for cell in cells])
            yield rule
        if config.max_cost is not None:
            some = self._some_config()
            prices = Prices.read(some.price)
            players = {(role.agent, role.model) for scene in some.effective_scenes for role in scene.roles}
            require_prices(prices, players, "max_cost")
            yield Budget(config.max_cost, guess_by(prices))

    def _open_job(self) -> Job:
        name = self.job_name or self.suggested_name
        return open_job(
            self.jobs_dir,
            name or time.strftime("%Y-%m-%d__%H-%M-%S"),
            uuid.uuid4().hex,
            exact=self.job_name is not None,
            resume=self.resume and name is not None,
            retry=self.config.retry,
            takes_others=self.resume_anyway,
            settings=self._some_config().decisive(),
        )

    def _tasks(self) -> dict[str, Path]:
        tasks = {_name(directory, task): task for directory in self.tasks_dirs for task in find_tasks(directory)}
        if not tasks:
            where = ", ".join(map(str, self.tasks_dirs))
            raise BadValue(f"there is no task in {where}", advice="name a task, or a folder that holds some")
        chosen = {name: task for name, task in tasks.items() if self.config.wants(name, task.name)}
        if not chosen:
            raise BadValue(f"none of {len(tasks)} tasks is left", advice="change include_tasks and exclude_tasks")
        return chosen

    def _cells(self, tasks: dict[str, Path]) -> Iterator[_Cell]:
        for name, task in tasks.items():
            for trial in range(1, self.config.trials + 1):
                yield _Cell(name if self.config.trials == 1 else f"{name}/{trial}", task, trial)

    def _config_of(self, cell: _Cell, job: Job) -> RolloutConfig:
        """Return the configuration of a rollout; made when it is needed, for there may be thousands."""
        return self.config.rollout(cell.task, trial=cell.trial, job=job.directory, key=cell.name)

    def _some_config(self) -> RolloutConfig:
        """Return what all rollouts have in common."""
        return self.config.rollout(Path(), trial=1, job=self.jobs_dir, key="")

    def _registry(self) -> AgentRegistry:
        registry = self._agents
        if registry is None:
            registry = AgentRegistry()
            registry.load_entry_points()
        for role in (role for scene in self._some_config().effective_scenes for role in scene.roles):
            registry.get(role.agent)  # one that nobody knows is told before anything starts
        return registry

    def _finished(self, job: Job, cells: Iterable[_Cell]) -> dict[str, RolloutResult]:
        """Return what an earlier run of the job has scored."""
        finished: dict[str, RolloutResult] = {}
        for cell in cells:
            config = self._config_of(cell, job)
            with suppress(TaskError):  # it is told when its turn comes
                file = find_task_file(os.path.abspath(config.task_path))
                result = file and job.unchanged(config.key, job.scores.fingerprint(config), str(file))
                result = result or job.finished(config, load_task(config.task_path))
                if result is not None:
                    finished[cell.name] = result
        return finished

    async def _run_all(self, job: Job, cells: Sequence[_Cell], resources: Resources) -> dict[str, RolloutResult]:
        results = self._finished(job, cells) if job.is_resumed else {}
        durations = Durations(cache_directory() / "durations.json", Path("/"))
        engine = Engine(self.config.concurrency)
        engine.at_close(resources.aclose)
        left = [cell for cell in cells if cell.name not in results]
        if self.config.confidence is None:  # else they are shuffled, and times must not matter
            left = _in_start_order(left, self._some_config(), durations, engine.width)
        coming = iter(left)

        async def run_next(group: asyncio.TaskGroup) -> None:
            for cell in coming:
                results[cell.name] = result = await _result_of(self._config_of(cell, job), job, engine, resources)
                if self.on_result is not None:
                    answer = self.on_result(cell.name, result)
                    if inspect.isawaitable(answer):
                        group.create_task(_finish(answer))  # however long it takes, it keeps no rollout waiting

        try:
            async with asyncio.TaskGroup() as group:
                # Enough are read ahead for every free place, and not all of them at once.
                for _ in range(min(len(left), 2 * engine.width)):
                    group.create_task(run_next(group))
        except BaseExceptionGroup as raised:
            raise raised.exceptions[0] from None  # the callback's own error, as it was raised
        finally:
            await asyncio.to_thread(engine.close)
            durations.learn(results.values())
            durations.save()
        return results


async def _finish(answer: Awaitable[None]) -> None:
    await answer


def _in_start_order(cells: Sequence[_Cell], config: RolloutConfig, durations: Durations, width: int) -> list[_Cell]:
    """Return rollouts in the order in which they start; all have the agent and the model of this configuration."""
    agent, model, scene = config.primary_agent, config.primary_model, config.scene
    planned = [
        Expected(f"{agent}/{model}", durations.expect(cell.task.absolute(), agent, model, scene)) for cell in cells
    ]
    return [cells[number] for number in start_order(planned, width)]


def _labels(config: RolloutConfig) -> Labels:
    """Return what filters can ask of a rollout that has not run."""
    player = config.agent, config.model, config.scene
    name, labels = config.task_path.name, Labels("", *player, config.sandbox, None, None, (), ("", *player))
    with suppress(BenchflowError):  # a broken task is told when its turn comes
        task = load_task(config.task_path)
        name = task.name
        labels = labels._replace(difficulty=task.difficulty, category=task.category, tags=task.tags)
    return labels._replace(task=name, trial_of=(str(config.task_path), *player))


async def _result_of(config: RolloutConfig, job: Job, engine: Engine, resources: Resources) -> RolloutResult:
    try:
        task = load_task(config.task_path)
    except BenchflowError as error:  # a broken task is one error among the results
        result = not_started(config, name=config.task_path.name, error=ErrorInfo.of(error, "create"))
        job.ledger.append(JobEvent.of_result("end", result))
        return result
    run = partial(job.run, config, task, resources)
    prepare = partial(prepare_rollout, config, task, resources)
    return await asyncio.wrap_future(engine.submit(run, prepare=prepare, permit=partial(job.permit, config)))


def _tasks_of(file: RolloutFile) -> tuple[Path, ...]:
    if file.source is not None:
        return (fetch_source(file.source, cache_directory() / "sources").path,)
    if not file.tasks:
        raise BadValue(f"{file.path} names no tasks", advice="add tasks: or source:")
    return file.tasks


def _name(directory: Path, task: Path) -> str:
    return task.name if task == directory else task.relative_to(directory).as_posix()
