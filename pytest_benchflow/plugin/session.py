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
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.plugin.items import Cell, SceneChoice, cells
from pytest_benchflow.plugin.settings import AgentChoice, Settings, default_concurrency, job_name, read_settings
from pytest_benchflow.plugin.stash import as_pytest_outcome, attribute_errors_to, expect_type

if TYPE_CHECKING:
    from pytest_benchflow.agents import AgentRegistry
    from pytest_benchflow.jobs import Engine
    from pytest_benchflow.plugin.items import RolloutItem
    from pytest_benchflow.rollout import Resources, Rollout, RolloutConfig, RolloutFile, RolloutResult
    from pytest_benchflow.sandboxes import SandboxRegistry
    from pytest_benchflow.tasks import Task, TaskIndex


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


_EXAMPLES = {"bf_threshold": "0.8", "bf_timeout": "600"}
_JOB = pytest.StashKey[tuple[str, str]]()


def job_of(config: pytest.Config) -> tuple[str, str]:
    """Return id and name of this run's job: the same in all its processes, and no directory is made for it yet."""
    if _JOB not in config.stash:
        handed: dict[str, str] = getattr(config, "workerinput", {})
        name = config.getoption("bf_job_name") or time.strftime("%Y-%m-%d__%H-%M-%S")
        config.stash[_JOB] = (handed.get("bf_run_id") or uuid.uuid4().hex, handed.get("bf_job_name") or name)
    return config.stash[_JOB]


class BenchSession:
    """Settings, registries, the engine and the job of one process; under xdist every worker has its own."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.settings: Settings = read_settings(config)
        self.job = self._read_job()
        if self.job is not None:
            from pytest_benchflow.plugin.job_files import with_job

            self.settings = with_job(self.settings, self.job)
        self.is_worker = hasattr(config, "workerinput")
        self.run_id, self.job_name = job_of(config)
        if self.job is not None and self.job.job_name is not None and self.settings.job_name is None:
            self.job_name = job_name(self.job.job_name, f"{self.job.path}: job_name")
        self._engine: Engine | None = None
        self._cells: dict[int, list[Cell]] = {}
        self.notes: list[str] = []
        self.futures: dict[str, Future[RolloutResult]] = {}
        for name in (*(agent.name for agent in self.settings.agents), *self._scene_agents()):
            self.agents.get(name)
        self._note_files()
        self.settings = replace(self.settings, agents=tuple(map(self._with_own_models, self.settings.agents)))
        self.sandbox_name, self.sandbox_reason = self.sandboxes.resolve(self.settings.sandbox)

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

        registry = SandboxRegistry(
            {"docker": {"network": network}} if (network := self.settings.docker_network) else None
        )
        self.config.hook.pytest_bf_register_sandboxes(registry=registry)
        return registry

    @cached_property
    def index(self) -> TaskIndex:
        """The cache of what task files say, kept beside pytest's own cache."""
        from pytest_benchflow.tasks import TaskIndex

        cache = getattr(self.config, "cache", None)
        try:
            return TaskIndex.load(cache.mkdir("benchflow") / "tasks.json" if cache is not None else None)
        except OSError:  # a project that cannot be written to is no reason not to run it
            return TaskIndex()

    @cached_property
    def sources(self) -> list[str]:
        """The local paths of what `--bf-source` names."""
        from pytest_benchflow.plugin.job_files import fetched_sources

        return fetched_sources(self)

    def _read_job(self) -> RolloutFile | None:
        """Read the job file, if there is one."""
        if self.settings.job_file is None:
            return None
        from pytest_benchflow.plugin.job_files import without_players
        from pytest_benchflow.rollout import load_rollout_file

        job = load_rollout_file(self.settings.job_file)
        return without_players(job) if self.settings.selftest else job

    @cached_property
    def scenes(self) -> dict[str, RolloutFile]:
        """The scene axis by name: scene files, and a job file that has scenes."""
        if not self.settings.scenes and self.job is None:
            return {}
        from pytest_benchflow.plugin.job_files import read_scenes, refuse_idle_options

        own = {self.job.name: self.job} if self.job is not None and self.job.scenes else {}
        found = {**own, **read_scenes(self.settings.scenes)}
        refuse_idle_options(self.config, [*found.values()])
        return found

    @property
    def width(self) -> int:
        """How many rollouts this process has in flight; under xdist the workers are the concurrency."""
        return self.settings.concurrency or (1 if self.is_worker else default_concurrency())

    @property
    def in_flight(self) -> int:
        """How many rollouts the whole run has in flight."""
        workers: int | None = getattr(self.config.option, "numprocesses", None)
        return workers if workers and not self.is_worker else self.width

    @property
    def engine(self) -> Engine:
        """The engine, started on first use."""
        if self._engine is None:
            from pytest_benchflow.jobs import Engine

            self._engine = Engine(self.width)
            self._engine.at_close(self.resources.aclose)
        return self._engine

    @cached_property
    def resources(self) -> Resources:
        """What the rollouts of this process share."""
        from pytest_benchflow.rollout import Resources
        from pytest_benchflow.services import ServiceRegistry

        services = ServiceRegistry()
        self.config.hook.pytest_bf_register_services(registry=services)
        return Resources(self.agents, self.sandboxes, services)

    @cached_property
    def job_directory(self) -> Path:
        """The job's directory, made on first use and shared by all processes of the run."""
        from pytest_benchflow.jobs import claim_job_directory

        exact = self.settings.job_name is not None
        return claim_job_directory(self.settings.jobs_dir, self.job_name, self.run_id, exact=exact)

    def cells(self, trials: int) -> list[Cell]:
        """Return the cells of a task that asks for so many trials; they are the same for every such task."""
        if trials not in self._cells:
            self._cells[trials] = cells(
                self.settings.agents, trials, lambda name: self.agents.get(name).takes_model, self._scene_choices()
            )
        return self._cells[trials]

    def _with_own_models(self, choice: AgentChoice) -> AgentChoice:
        """Return an agent without the models that `agent=model` means for other ones; aliases are the same agent."""
        own: list[str | None] = []
        for model in choice.models:
            word, _, rest = (model or "").partition("=")
            owner = self._agent_called(word) if rest else None
            if owner is None:
                own.append(model)
            elif owner == self._agent_called(choice.name):
                own.append(rest)
        return replace(choice, models=tuple(own) or (None,))

    def _agent_called(self, word: str) -> str | None:
        try:
            return self.agents.get(word).name
        except UsageError:
            return None

    def _scene_agents(self) -> list[str]:
        """Return the agents that scene files name; reading them here makes what is wrong with them a usage error."""
        roles = [role for file in self.scenes.values() for scene in file.scenes for role in scene.roles]
        return [role.agent for role in roles if role.agent is not None]

    def _note_files(self) -> None:
        """Remember what scene and job files say that has no effect."""
        files = {id(file): file for file in (self.job, *self.scenes.values()) if file is not None}
        if files:
            from pytest_benchflow.plugin.job_files import idle_keys

            self.notes += [note for file in files.values() for note in idle_keys(file)]

    def _scene_choices(self) -> list[SceneChoice]:
        if not self.scenes:
            return []
        from pytest_benchflow.plugin.job_files import choice_of

        return [choice_of(file) for file in self.scenes.values()]

    def save_index(self) -> None:
        """Keep what the task files said for the next collection; one worker does it for all."""
        if "index" in self.__dict__ and getattr(self.config, "workerinput", {}).get("workerid", "gw0") == "gw0":
            self.index.save()

    async def preflight(self) -> None:
        """Raise one clear error if no rollout could start: no sandbox works here, or the job's name is taken."""
        await self.resources.backend(self.sandbox_name)
        _ = self.job_directory  # last, so that a run that cannot start leaves none behind

    def close(self) -> None:
        """Stop everything that still runs; idempotent."""
        if self._engine is not None:
            self._engine.close()

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
        from pytest_benchflow.tasks import load_task

        task = load_task(Path(node.head.file) if isinstance(node, RolloutItem) else self._marked_task(node))
        return self.modified_task(node, task)

    def modified_task(self, node: pytest.Item | pytest.Collector, task: Task) -> Task:
        """Return a task as the hooks want it."""
        from pytest_benchflow.tasks import Task

        changed = node.ihook.pytest_bf_modify_task(task=task)
        return task if changed is None else expect_type(changed, Task, "pytest_bf_modify_task", "returned")

    def config_of(self, node: pytest.Item, task: Task) -> RolloutConfig:
        """Return the configuration of a node's rollout: markers, then the task, then the settings."""
        from pytest_benchflow.rollout import RolloutConfig

        settings, cell = self.settings, getattr(node, "cell", None)
        if cell is not None and node.get_closest_marker("bf_trials") is not None:
            advice = "set trials in the task file or in [[tool.benchflow.overrides]]"
            raise UsageError(f"{node.nodeid}: bf_trials comes too late for a task", advice=advice)
        override = settings.override_for(self._relative(task.path), task.name)
        threshold = _first(_argument(node, "bf_threshold"), override.threshold, task.run.threshold)
        on_command_line = settings.agent_timeout if self.config.getoption("bf_agent_timeout") is not None else None
        timeout = _first(
            _argument(node, "bf_timeout"),
            on_command_line,
            override.timeout,
            settings.agent_timeout,
            task.run.timeout_sec,
        )
        config = RolloutConfig(
            task_path=task.path,
            agent=cell.agent if cell else settings.agents[0].name,
            model=cell.model if cell else settings.agents[0].models[0],
            reasoning_effort=settings.effort,
            prompts=settings.prompts,
            trial=cell.trial if cell else _trial_of(node),
            sandbox=self.sandbox_name,
            sandbox_user=settings.sandbox_user,
            sandbox_setup_timeout=settings.sandbox_setup_timeout,
            threshold=settings.threshold if threshold is None else threshold,
            timeout=timeout,
            agent_idle_timeout=settings.agent_idle_timeout,
            timeout_multiplier=settings.timeout_multiplier,
            missing_credentials=settings.missing_credentials,
            agent_env=settings.agent_env,
            verifier_env=settings.verifier_env,
            force_build=settings.force_build,
            base_image_override=settings.base_image_override,
            context_root=settings.context_root,
            keep_sandbox=settings.keep_sandbox,
            jobs_dir=self.job_directory.parent,
            job_name=self.job_directory.name,
            key=node.nodeid,
        )
        marked = {"bf_threshold": _argument(node, "bf_threshold"), "bf_agent_timeout": _argument(node, "bf_timeout")}
        decided = {*settings.given, *(name for name, value in marked.items() if value is not None)}
        config = self._with_files(config, cell, decided)
        changed = node.ihook.pytest_bf_modify_config(config=config, task=task)
        return config if changed is None else expect_type(changed, RolloutConfig, "pytest_bf_modify_config", "returned")

    def _with_files(self, config: RolloutConfig, cell: Cell | None, decided: set[str]) -> RolloutConfig:
        scene = self.scenes.get(cell.scene) if cell is not None and cell.scene is not None else None
        files = [file for file in (self.job, None if scene is self.job else scene) if file is not None]
        if not files:
            return config
        from pytest_benchflow.plugin.job_files import with_file

        for file in files:
            config = with_file(config, file, cell, decided)
        return replace(config, scene=cell.scene if cell else None)

    def open_rollout(self, config: RolloutConfig, task: Task | None = None) -> Rollout:
        """Return a rollout of this run; nothing has started yet."""
        from pytest_benchflow.rollout import Rollout, RolloutConfig
        from pytest_benchflow.tasks import load_task

        expect_type(config, RolloutConfig, "the configuration", "is")
        config = (
            config
            if config.job_name
            else replace(config, jobs_dir=self.job_directory.parent, job_name=self.job_directory.name)
        )
        return Rollout(config, self.resources, task or load_task(config.task_path), on_phase=self._on_phase)

    async def rollout(self, config: RolloutConfig, task: Task | None = None) -> RolloutResult:
        """Run a whole rollout."""
        return await self.open_rollout(config, task).run()

    async def rollout_of(self, item: RolloutItem) -> RolloutResult:
        """Run the rollout of a collected item."""
        task = self.task_of(item)
        return await self.rollout(self.config_of(item, task), task)

    def _on_phase(self, rollout: Rollout, phase: str) -> None:
        with attribute_errors_to("pytest_bf_rollout_phase"):
            self.config.hook.pytest_bf_rollout_phase(rollout=rollout, phase=phase)

    def shown(self, path: str) -> str:
        """Return a path as short as the user would write it here."""
        return path.removeprefix(f"{self.config.invocation_params.dir}/")

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path, self.config.rootpath)

    def _marked_task(self, node: pytest.Item) -> Path:
        marker = node.get_closest_marker("bf_task")
        if marker is None or len(marker.args) != 1:
            raise UsageError(f"{node.nodeid} names no task", advice='mark it with @pytest.mark.bf_task("tasks/NAME")')
        path = Path(marker.args[0])
        beside = node.path.parent / path
        return beside if beside.exists() else self.config.rootpath / path


def _argument(node: pytest.Item, marker_name: str) -> float | None:
    marker = node.get_closest_marker(marker_name)
    if marker is None:
        return None
    if len(marker.args) != 1 or isinstance(marker.args[0], bool) or not isinstance(marker.args[0], int | float):
        raise UsageError(
            f"{node.nodeid}: {marker_name} takes one number", advice=f"write {marker_name}({_EXAMPLES[marker_name]})"
        )
    return float(marker.args[0])


def _trial_of(node: pytest.Item) -> int:
    callspec = getattr(node, "callspec", None)
    return 1 if callspec is None else int(callspec.params.get("bf_trial", 1))


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
