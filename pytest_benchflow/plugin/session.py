"""What one pytest process knows about its benchmark run; made when the first task, option or fixture asks for it.

Tests on any event loop, or on none, reach objects of the engine's loop through a proxy.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import time
import uuid
from collections.abc import Collection, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from pytest_benchflow.core.settings import merge, settings_of
from pytest_benchflow.plugin.controller import is_of_task_file
from pytest_benchflow.plugin.gating import budget_rule, read_baseline, read_run_gates, stop_rule
from pytest_benchflow.plugin.resolve import (
    choose_agents,
    longer_named,
    marked_task,
    modified_task,
    rollout_config,
    run_settings,
    with_own_models,
)
from pytest_benchflow.plugin.settings import Settings, read_settings
from pytest_benchflow.plugin.stash import as_pytest_outcome, attribute_errors_to, expect_type
from pytest_benchflow.rollout import RolloutConfig
from pytest_benchflow.rollout.settings import RolloutSettings, RunSettings

if TYPE_CHECKING:
    from pytest_benchflow.agents import AgentRegistry
    from pytest_benchflow.jobs import Cell, Durations, Engine, Gate, Job, SceneChoice, Width
    from pytest_benchflow.plugin.items import RolloutItem
    from pytest_benchflow.plugin.run_loop import Ahead
    from pytest_benchflow.plugin.task_warnings import TaskWarnings
    from pytest_benchflow.reporting import Entry
    from pytest_benchflow.rollout import OnPhase, Resources, Rollout, RolloutFile, RolloutResult
    from pytest_benchflow.sandboxes import SandboxRegistry
    from pytest_benchflow.tasks import RunHints, Task, TaskIndex


T = TypeVar("T")


class EngineProxy:
    """Forward to an object; its coroutine methods run on the engine's loop and can be awaited on any other."""

    def __init__(self, target: object, engine: Engine) -> None:
        self._bf_target = target
        self._bf_engine = engine

    @classmethod
    def wrap(cls, target: T, engine: Engine) -> T:
        """Return a stand-in that has the same interface."""
        return cast("T", cls(target, engine))

    @staticmethod
    def unwrap(target: T) -> T:
        """Return the object itself, which only code on the engine's loop may await."""
        return cast("T", target._bf_target) if isinstance(target, EngineProxy) else target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._bf_target, name)
        if not inspect.iscoroutinefunction(value):
            return value

        @functools.wraps(value)
        async def on_engine(*args: object, **kwargs: object) -> object:
            return await asyncio.wrap_future(self._bf_engine.start(value(*args, **kwargs)))

        return on_engine

    def __repr__(self) -> str:
        return repr(self._bf_target)


_JOB = pytest.StashKey[tuple[str, str]]()
_KEPT_TASKS = 64


def job_of(config: pytest.Config) -> tuple[str, str]:
    """Return an id and a name for this run's job, if nobody names it: the same in all its processes."""
    if _JOB not in config.stash:
        handed: dict[str, str] = getattr(config, "workerinput", {})
        now = time.strftime("%Y-%m-%d__%H-%M-%S")
        config.stash[_JOB] = handed.get("bf_run_id") or uuid.uuid4().hex, handed.get("bf_job_name") or now
    return config.stash[_JOB]


class BenchSession:
    """Settings, registries, the engine and the job of one process; under xdist every worker has its own."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.is_worker = hasattr(config, "workerinput")
        self.given: Settings = read_settings(config)
        self.job_file = self._read_job()
        self.settings: RunSettings = run_settings(config, self.given, self.job_file)
        self.layers = (*self.given.layers, *([] if self.job_file is None else [self.job_file.layer("job file")]))
        self.run_id, self.job_name = self._name_job()
        self._engine: Engine | None = None
        self._cells: dict[tuple[int, ...], list[Cell]] = {}
        self.known_trials: dict[RunHints, tuple[int, ...]] = {}
        self._tasks: dict[Path, Task] = {}
        self.notes: list[str] = []
        self.ahead: Ahead | None = None
        self.reused: set[str] = set()
        """The keys of rollouts whose score is of an earlier run of the job."""
        self.scored_keys: Collection[str] = ()
        """The rollouts of which the job has a score from an earlier run."""
        self._begun: set[str] = set()
        """The keys of rollouts that this process has begun: who asks for one again wants it to run again."""
        choices = choose_agents(self.given, self.settings, self.job_file)
        for name in (*(choice.name for choice in choices), *self._scene_agents()):
            self.agents.get(name)
        self._note_files()
        self.agent_choices = tuple(with_own_models(choice, self.agents) for choice in choices)
        self.defaults = RolloutConfig(task_path=Path(), **merge(settings_of(RolloutSettings).values(), *self.layers))
        self.sandbox_name, self.sandbox_reason = self.sandboxes.resolve(self.defaults.sandbox)
        self.gates: Sequence[Gate] = read_run_gates(self)
        self.stop_rule = stop_rule(self)
        self.budget = budget_rule(self)
        self.baseline: Sequence[Entry] | None = None if self.is_worker else read_baseline(self)

    @cached_property
    def agents(self) -> AgentRegistry:
        """The agents this run knows."""
        from pytest_benchflow.agents import AgentRegistry

        registry = AgentRegistry()
        registry.load_entry_points()
        self.config.hook.pytest_bf_register_agents(registry=registry)
        return registry

    @cached_property
    def sandboxes(self) -> SandboxRegistry:
        """The kinds of sandbox this run knows."""
        from pytest_benchflow.sandboxes import SandboxRegistry

        network = self.settings.docker_network
        registry = SandboxRegistry({} if network is None else {"docker": {"network": network}})
        self.config.hook.pytest_bf_register_sandboxes(registry=registry)
        if self.settings.sandbox_option:
            from pytest_benchflow.sandboxes import parse_backend_options

            registry.add_options(parse_backend_options(self.settings.sandbox_option, registry))
        return registry

    @cached_property
    def index(self) -> TaskIndex:
        """The cache of what task files say, kept beside pytest's own cache."""
        from pytest_benchflow.tasks import TaskIndex

        cache = getattr(self.config, "cache", None)
        try:
            return TaskIndex.load(cache.mkdir("benchflow") / "tasks.json" if cache is not None else None)
        except OSError:  # a project that cannot be written to can still be run
            return TaskIndex()

    @cached_property
    def task_warnings(self) -> TaskWarnings:
        """What the task files are warned of."""
        from pytest_benchflow.plugin.task_warnings import TaskWarnings

        return TaskWarnings()

    @cached_property
    def sources(self) -> list[str]:
        """The local paths of what `--bf-source` names."""
        from pytest_benchflow.plugin.job_files import fetched_sources

        return fetched_sources(self)

    def _read_job(self) -> RolloutFile | None:
        """Read the job file, if there is one."""
        values = merge(settings_of(RunSettings).values(), *self.given.layers)
        if values.get("config") is None:
            return None
        from pytest_benchflow.plugin.job_files import without_players
        from pytest_benchflow.rollout import load_rollout_file

        job = load_rollout_file(values["config"])
        return without_players(job) if values.get("selftest") else job

    @cached_property
    def scenes(self) -> dict[str, RolloutFile]:
        """The scene axis by name: scene files, and a job file that has scenes."""
        if not self.settings.scene and self.job_file is None:
            return {}
        from pytest_benchflow.plugin.job_files import find_scene_files, read_scenes, refuse_idle_options

        own = {self.job_file.name: self.job_file} if self.job_file is not None and self.job_file.scenes else {}
        words = () if self.settings.selftest else self.settings.scene
        here = self.config.rootpath if self.config.getoption("bf_scene") is None else self.config.invocation_params.dir
        files = {**own, **read_scenes(find_scene_files(words, self.config.rootpath, here))}
        refuse_idle_options(self.config, [*files.values()])
        return files

    @cached_property
    def width(self) -> Width:
        """How many rollouts this process has in flight; under xdist the workers are the concurrency."""
        from pytest_benchflow.jobs import Width, auto_width

        if self.settings.concurrency is not None or self.is_worker or self.n_workers:
            return Width(self.settings.concurrency or 1, "")
        is_here = self.sandbox_name in ("local", "docker")
        return auto_width(is_remote=not is_here and self.sandboxes.create(self.sandbox_name).capabilities.remote)

    @property
    def n_workers(self) -> int:
        """How many xdist workers this process has; 0 without xdist, and in a worker."""
        is_distributed = not self.is_worker and getattr(self.config.option, "dist", "no") != "no"
        return len(getattr(self.config.option, "tx", None) or ()) if is_distributed else 0

    @property
    def in_flight(self) -> int:
        """How many rollouts the whole run has in flight."""
        return max(1, self.n_workers) * self.width.number

    @cached_property
    def durations(self) -> Durations:
        """How long rollouts took in earlier runs, kept beside the index of tasks."""
        from pytest_benchflow.jobs import Durations

        cache = getattr(self.config, "cache", None)
        try:
            path = None if cache is None else cache.mkdir("benchflow") / "durations.json"
        except OSError:  # a project that cannot be written to can still be run
            path = None
        return Durations(path, self.config.rootpath)

    def ids_in_start_order(self, ids: Sequence[str]) -> list[int]:
        """Return the numbers of collected items in the order in which they are to start, by their ids alone."""
        from pytest_benchflow.jobs import Expected, start_order

        if self._keeps_order:
            return [*range(len(ids))]
        cells = {cell.name: cell for cell in self.cells()}
        planned: dict[int, Expected] = {}
        for number, nodeid in enumerate(ids):
            file, _, name = nodeid.rpartition("::")
            cell = cells.get(name) or cells.get(name.rpartition("/")[0])
            if cell is not None and is_of_task_file(nodeid):
                folder = (self.config.rootpath / file).parent
                seconds = self.durations.expect(folder, cell.agent, cell.model, cell.scene)
                planned[number] = Expected(f"{cell.agent}/{cell.model}", seconds)
        numbers, others = [*planned], [number for number in range(len(ids)) if number not in planned]
        order = [numbers[place] for place in start_order([*planned.values()], self.in_flight)]
        return [*range(len(ids))] if order == numbers else [*others, *order]

    def in_start_order(self, items: Sequence[RolloutItem]) -> Sequence[RolloutItem]:
        """Return items in the order in which their rollouts start; the same sequence if that is the given one."""
        from pytest_benchflow.jobs import Expected, start_order

        if self._keeps_order:
            return items
        cells = [(item.cell, item.path.parent) for item in items]
        expect = self.durations.expect
        planned = [
            Expected(f"{cell.agent}/{cell.model}", expect(path, cell.agent, cell.model, cell.scene))
            for cell, path in cells
        ]
        order = start_order(planned, self.in_flight)
        return items if order == [*range(len(items))] else [items[number] for number in order]

    @property
    def _keeps_order(self) -> bool:
        """Whether rollouts start in pytest's order, and not the longest first.

        A run that stops at a failure does: what fails late would have let too much start. So does one with a
        sequential test, which counts outcomes in the shuffled order: how long they take must not matter.
        """
        is_tested = self.settings.confidence is not None
        return self.settings.order == "given" or bool(self.config.getoption("maxfail")) or is_tested

    @property
    def engine(self) -> Engine:
        """The engine, started on first use."""
        if self._engine is None:
            from pytest_benchflow.jobs import Engine

            self._engine = Engine(self.width.number)
            self._engine.at_close(self.resources.aclose)
        return self._engine

    @cached_property
    def resources(self) -> Resources:
        """What the rollouts of this process share."""
        from pytest_benchflow.rollout import Resources

        register = self.config.hook.pytest_bf_register_services
        needs_prices = self.budget is not None
        if not register.get_hookimpls():
            return Resources(self.agents, self.sandboxes, needs_prices=needs_prices)
        from pytest_benchflow.services import ServiceRegistry

        services = ServiceRegistry()
        register(registry=services)
        return Resources(self.agents, self.sandboxes, services, needs_prices=needs_prices)

    def _name_job(self) -> tuple[str, str]:
        """Return the id of the run and its job's name: the same in all its processes, and nothing is made yet."""
        run_id, unnamed = job_of(self.config)
        if self.is_worker:
            return run_id, unnamed
        if self.settings.resume is None:
            return run_id, self.settings.job_name or unnamed
        from pytest_benchflow.jobs import newest_job, owner_of

        name = self.settings.job_name or newest_job(self.settings.jobs_dir)
        return owner_of(self.settings.jobs_dir / name) or run_id, name

    @cached_property
    def job(self) -> Job:
        """This run's job; its directory is made on first use and shared by all processes of the run."""
        from pytest_benchflow.jobs import CircuitBreaker, open_job, retry_policy

        job = open_job(
            self.settings.jobs_dir,
            self.job_name,
            self.run_id,
            exact=self.config.getoption("bf_job_name") is not None,
            resume=self.settings.resume is not None,
            retry=retry_policy(None if self.job_file is None else self.job_file.retry, self.settings.retries),
            settings={**self.defaults.decisive(), "sandbox": self.sandbox_name},
            takes_others=self.settings.resume_anyway,
        )
        job.limit_models(self.settings.max_per_model, is_shared=self.is_worker)
        if self.is_worker:
            self.resources.judge_limit.share(job.slots)
        if self.settings.breaker is not None:
            job.rules.append(CircuitBreaker(self.settings.breaker))
        job.rules += [rule for rule in (self.stop_rule, self.budget) if rule is not None]
        if not self.is_worker:
            job.hold()
            played = {(cell.agent, cell.model) for cell in self.cells()}
            self.scored_keys = job.check_earlier(played, is_of_task_file)
        return job

    @property
    def has_job(self) -> bool:
        """Whether the job's directory has been made."""
        return "job" in self.__dict__

    @property
    def is_judged_without_rollouts(self) -> bool:
        """Whether gates apply even if no rollout was selected: those that this very command asks for."""
        asked = {name for layer in self.given.layers if layer.name == "command line" for name in layer.values}
        return not asked.isdisjoint(("gate", "max_regression"))

    def cells(self, trials: tuple[int, ...] | None = None) -> list[Cell]:
        """Return the cells of a task that asks for so many trials of each scene; without trials, one cell of each."""
        repeats = trials or (1,) * max(1, len(self.scenes))
        if repeats not in self._cells:
            from pytest_benchflow.jobs import cells

            self._cells[repeats] = cells(
                self.agent_choices, repeats, lambda name: self.agents.get(name).takes_model, self._scene_choices()
            )
        return self._cells[repeats]

    def _scene_agents(self) -> list[str]:
        """Return the agents that scene files name; reading them here makes what is wrong with them a usage error."""
        roles = [role for file in self.scenes.values() for scene in file.scenes for role in scene.roles]
        return [role.agent for role in roles if role.agent is not None]

    def _note_files(self) -> None:
        """Remember what scene and job files say that has no effect."""
        files = {id(file): file for file in (self.job_file, *self.scenes.values()) if file is not None}
        if files:
            from pytest_benchflow.plugin.job_files import idle_keys

            self.notes += [note for file in files.values() for note in idle_keys(file, self.job_file)]

    def _scene_choices(self) -> list[SceneChoice]:
        if not self.scenes:
            return []
        from pytest_benchflow.plugin.job_files import choice_of

        return [choice_of(file) for file in self.scenes.values()]

    def after_collection(self) -> None:
        """Keep what the task files said for the next one, and tell their warnings; one worker does it for all."""
        if getattr(self.config, "workerinput", {}).get("workerid", "gw0") != "gw0":
            return
        if "index" in self.__dict__:
            self.index.save()
            del self.index  # thousands of tasks are a few megabytes, and nobody asks again
        if "task_warnings" in self.__dict__:
            self.task_warnings.tell()

    async def preflight(self) -> None:
        """Raise one clear error if no rollout could start: no sandbox works here, or the job's name is taken."""
        if self.settings.atif is not None:
            from pytest_benchflow.reporting import require_atif

            require_atif()
        await self.resources.backend(self.sandbox_name)
        _ = self.job  # last, so that a run that cannot start leaves none behind

    def close(self, *, within_sec: float | None = None) -> None:
        """Stop everything that still runs, with a limit for its clean-up if there is little time; idempotent."""
        if self._engine is not None:
            self._engine.close(within_sec=within_sec)
        if self.has_job:
            self.job.close()
        if "_hook_thread" in self.__dict__:
            self._hook_thread.shutdown(wait=False, cancel_futures=True)

    def cancel(self) -> None:
        """Cancel what runs and what is queued, from any thread, and let it clean up."""
        if self._engine is not None:
            self._engine.cancel()

    def wait(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the engine; what goes wrong becomes a short pytest error or skip."""
        with as_pytest_outcome():
            return self.engine.call(coroutine)

    def reachable(self, target: T) -> T:
        """Return a stand-in for an object of the engine's loop that a test on any loop can await."""
        return EngineProxy.wrap(target, self.engine)

    def task_of(self, node: pytest.Item) -> Task:
        """Return the task of a collected item, or the one that a test's `bf_task` marker names."""
        from pytest_benchflow.plugin.items import RolloutItem

        if isinstance(node, RolloutItem):
            return modified_task(node, self._collected_task(Path(node.summary.file)))
        from pytest_benchflow.tasks import load_task

        return modified_task(node, load_task(marked_task(node)))

    def _collected_task(self, path: Path) -> Task:
        """Read a task file once for all its items, which follow each other."""
        from pytest_benchflow.tasks import load_task

        if path not in self._tasks:
            if len(self._tasks) >= _KEPT_TASKS:
                self._tasks.clear()
            self._tasks[path] = load_task(path)
        return self._tasks[path]

    def config_of(self, node: pytest.Item, task: Task) -> RolloutConfig:
        """Return the configuration of a node's rollout."""
        return rollout_config(self, node, task)

    def submit(self, config: RolloutConfig, task: Task) -> Future[RolloutResult]:
        """Queue a rollout, unless an earlier run of the job has its score."""
        earlier = self._earlier(config, task)
        if earlier is None:
            from pytest_benchflow.rollout import prepare_rollout

            return self.engine.submit(
                partial(self.job.run, config, task, self.resources, self._on_phase),
                prepare=partial(prepare_rollout, config, task, self.resources),
                permit=partial(self.job.permit, config),
            )
        done: Future[RolloutResult] = Future()
        done.set_result(earlier)
        return done

    def run(
        self, config: RolloutConfig, task: Task | None = None, *, rerun_of: RolloutResult | None = None
    ) -> RolloutResult:
        """Run a whole rollout now, beside those that are queued."""
        from pytest_benchflow.tasks import load_task

        with as_pytest_outcome():
            expect_type(config, RolloutConfig, "the configuration", "is")
            task = task or load_task(config.task_path)  # anew each time, for a test may change it between runs
            earlier = self._earlier(config, task)
            return earlier or self.engine.call(
                self.job.run_unqueued(config, task, self.resources, self._on_phase, rerun_of=rerun_of)
            )

    def _earlier(self, config: RolloutConfig, task: Task) -> RolloutResult | None:
        result = self.job.finished(config, task)
        if result is None and self.settings.resume is not None:
            # Whether the task had a namesake then is not known: what is collected may differ from run to run.
            path = os.path.relpath(task.path, self.config.rootpath)
            is_plain = config.rollout_name is None
            other = longer_named(config, task, path) if is_plain else replace(config, rollout_name=None)
            result = self.job.finished(other, task)
        if result is not None:
            self.note_reused(config.key)
            return result
        if self.is_worker and config.key not in self._begun:
            result = self.job.recovered(config, task)
        self._begun.add(config.key)
        return result

    def note_reused(self, key: str) -> None:
        """Remember that a rollout has the score of an earlier run: who asks for it again wants it to run."""
        self.reused.add(key)
        self._begun.add(key)

    def open_rollout(self, config: RolloutConfig, task: Task) -> Rollout:
        """Return a rollout of this run; nothing has started yet."""
        from pytest_benchflow.rollout import Rollout

        expect_type(config, RolloutConfig, "the configuration", "is")
        return Rollout(self.job.place(config), self.resources, task, on_phase=self._on_phase)

    @cached_property
    def _on_phase(self) -> OnPhase | None:
        """What rollouts await when they enter a phase: the hook, on a thread that only hooks run on, one at a time."""
        if not self.config.hook.pytest_bf_rollout_phase.get_hookimpls():
            return None

        def call(rollout: Rollout, phase: str) -> None:
            with attribute_errors_to("pytest_bf_rollout_phase"):
                self.config.hook.pytest_bf_rollout_phase(rollout=rollout, phase=phase)

        async def on_phase(rollout: Rollout, phase: str) -> None:
            await asyncio.get_running_loop().run_in_executor(self._hook_thread, call, rollout, phase)

        return on_phase

    @cached_property
    def _hook_thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "benchflow-hooks")

    def shown(self, path: str) -> str:
        """Return a path as short as the user would write it here."""
        return path.removeprefix(f"{self.config.invocation_params.dir}/")
