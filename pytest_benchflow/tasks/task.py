"""`Task` and its steps, what the rest of the package works with, whichever layout it was written in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pytest_benchflow.core.files import compose_file
from pytest_benchflow.core.network import Network
from pytest_benchflow.tasks.digest import digest_tree, left_out
from pytest_benchflow.tasks.layout import tags_of, word
from pytest_benchflow.tasks.models import AgentConfig, Artifact, StepConfig, TaskConfig
from pytest_benchflow.tasks.required_files import rubric_paths, script, strategy_rubrics
from pytest_benchflow.tasks.summary import RunHints

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_benchflow.configfile import PhaseNetworkMode, Problem
    from pytest_benchflow.tasks.document import DocumentConfig
    from pytest_benchflow.tasks.layout import Layout, LayoutName, SolutionTarget, TestsTarget
    from pytest_benchflow.tasks.models import (
        BenchflowConfig,
        CollectHook,
        EnvironmentConfig,
        Hardening,
        Healthcheck,
        Judge,
        VerifierConfig,
    )
    from pytest_benchflow.tasks.native import Strategy
    from pytest_benchflow.tasks.prompts import Prompts


ALWAYS_KEPT = Artifact(source="/logs/artifacts")


def build_steps(
    root: Path, config: TaskConfig, layout: Layout, instructions: tuple[str, ...], strategy: Strategy | None
) -> tuple[TaskStep, ...]:
    """Return the steps of a task, one for a task that declares none; `instructions` match them."""
    steps: tuple[StepConfig | None, ...] = config.steps or (None,)
    return tuple(
        _step(root, config, layout, step, text, strategy) for step, text in zip(steps, instructions, strict=True)
    )


def _step(
    root: Path, config: TaskConfig, layout: Layout, step: StepConfig | None, text: str, strategy: Strategy | None
) -> TaskStep:
    own = step.agent if step else AgentConfig()
    agent = config.agent
    folder = root / "steps" / step.name if step else None
    tests = [root / layout.tests] + ([folder / layout.tests] if folder else [])
    tests_dirs = tuple(path for path in tests if path.is_dir())
    solution_dir = _solution(root, folder, layout, script(config, "solve"))
    copied = (*tests_dirs, solution_dir) if solution_dir else tests_dirs
    return TaskStep(
        name=step.name if step else None,
        instruction="\n\n".join(part for part in (own.prompt_prefix or agent.prompt_prefix, text) if part),
        agent_timeout_sec=own.timeout_sec if own.timeout_sec is not None else agent.timeout_sec,
        agent_user=own.user if own.user is not None else agent.user,
        agent_network=_network(own, agent, config.environment),
        verifier=_verifier(root, config, layout, step, tests_dirs, strategy),
        tests_dirs=tests_dirs,
        test_script=(strategy.script if strategy is not None else None) or script(config, "test"),
        solution_dir=solution_dir,
        workdir_dir=folder / "workdir" if folder and (folder / "workdir").is_dir() else None,
        min_reward=step.min_reward if step else None,
        healthcheck=step.healthcheck if step else None,
        artifacts=_artifacts((*config.artifacts, *(step.artifacts if step else ()))),
        left_out={path: names for path in copied if (names := left_out(root, path))},
    )


def _verifier(
    root: Path,
    config: TaskConfig,
    layout: Layout,
    step: StepConfig | None,
    tests_dirs: tuple[Path, ...],
    strategy: Strategy | None,
) -> StepVerifier:
    task = config.verifier
    own = step.verifier if step else task
    own_fields = own.model_fields_set
    judge = own.judge or task.judge
    kind = own.type if "type" in own_fields else task.type
    rubric = _rubric(root, own if own.judge else task, layout, step) if kind == "llm-judge" else None
    if strategy is not None and strategy.judge is not None:
        kind, judge = "llm-judge", strategy.judge
        rubric = _first_file(root / layout.tests, strategy_rubrics(strategy.judge))
    # A judge runs in no sandbox: it looks at a copy of the agent's.
    mode = "shared" if kind == "llm-judge" else (own if own.says_mode() else task).mode
    environment = (own.environment or task.environment) if mode == "separate" else None
    image = environment is not None and environment.docker_image is not None
    build_dir = None if image or mode == "shared" else _build_dir(tests_dirs)
    return StepVerifier(
        type=kind,
        timeout_sec=own.timeout_sec,
        env={**task.env, **own.env},
        user=own.user if own.user is not None else task.user,
        network=_network(own, task, environment or config.environment),
        mode=mode,
        environment=environment,
        build_dir=build_dir,
        uploads_tests=not image and build_dir is None,
        collect=task.collect if step is None else (*task.collect, *own.collect),
        service=own.service if "service" in own_fields else task.service,
        pytest_plugins=own.pytest_plugins if "pytest_plugins" in own_fields else task.pytest_plugins,
        reward_range=own.reward_range or task.reward_range,
        judge=judge,
        rubric=rubric,
        hardening=own.hardening if "hardening" in own_fields else task.hardening,
        strategy=strategy,
        expected_skills=memory.expected_skills if (memory := own.memory or task.memory) else (),
    )


def _network(own: AgentConfig | VerifierConfig, task: AgentConfig | VerifierConfig, base: EnvironmentConfig) -> Network:
    """Return the step's policy, else the task's for the phase, else the environment's."""
    for policy in (own, task):
        mode: PhaseNetworkMode | None = policy.network_mode
        if mode is not None:
            return Network(mode, policy.allowed_hosts or ())
    return base.network


def _artifacts(declared: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    """Return what is kept; a task that declares what is always kept says so in its own way, with `exclude` for one."""
    same = (a.source.rstrip("/") == ALWAYS_KEPT.source and a.service == ALWAYS_KEPT.service for a in declared)
    return declared if any(same) else (ALWAYS_KEPT, *declared)


def _build_dir(tests_dirs: tuple[Path, ...]) -> Path | None:
    """Return the tests directory that describes an image; the step's wins."""
    for folder in reversed(tests_dirs):
        if (folder / "Dockerfile").is_file() or compose_file(folder):
            return folder
    return None


def _solution(root: Path, folder: Path | None, layout: Layout, solve: str) -> Path | None:
    candidates = [folder / layout.solution] if folder else []
    candidates.append(root / layout.solution)
    return next((path for path in candidates if (path / solve).is_file()), None)


def _rubric(root: Path, verifier: VerifierConfig, layout: Layout, step: StepConfig | None) -> Path | None:
    return _first_file(root, rubric_paths(verifier, layout, step))


def _first_file(directory: Path, names: tuple[str, ...]) -> Path | None:
    return next((directory / name for name in names if (directory / name).is_file()), None)


@dataclass(frozen=True, slots=True)
class StepVerifier:
    """How one step is scored, inheritance applied."""

    type: Literal["test-script", "llm-judge"]
    timeout_sec: float
    env: dict[str, str]
    """Templates not filled yet; the task's table with the step's over it."""
    user: str | int | None
    network: Network
    mode: Literal["shared", "separate"]
    environment: EnvironmentConfig | None
    """The verifier's own environment table; None in separate mode means a fresh copy of the task's."""
    build_dir: Path | None
    """Build context of the verifier's own image, if the tests carry a Dockerfile or compose file."""
    uploads_tests: bool
    """False if the verifier's image already holds the tests."""
    collect: tuple[CollectHook, ...]
    service: str
    pytest_plugins: tuple[str, ...]
    reward_range: tuple[float, float] | None
    """Lowest and highest reward, if the task says so; else any number is one."""
    judge: Judge | None
    rubric: Path | None
    hardening: Hardening
    strategy: Strategy | None
    """The chosen strategy of a `verifier.md`, if there is one."""
    expected_skills: tuple[str, ...] = ()

    def directory(self, environment_dir: Path | None) -> Path | None:
        """Return the build context of the environment that the tests run in, None if that is a ready image."""
        if self.mode == "shared":
            return environment_dir
        return self.build_dir or (environment_dir if self.uploads_tests else None)


@dataclass(frozen=True, slots=True)
class TaskStep:
    """Everything one step needs; a task without steps has exactly one, whose name is None."""

    name: str | None
    instruction: str
    agent_timeout_sec: float | None
    agent_user: str | int | None
    agent_network: Network
    verifier: StepVerifier
    tests_dirs: tuple[Path, ...]
    """Uploaded one over the other, the task's first."""
    test_script: str
    """Path of the script inside the tests target."""
    solution_dir: Path | None
    workdir_dir: Path | None
    min_reward: float | dict[str, float] | None
    healthcheck: Healthcheck | None
    artifacts: tuple[Artifact, ...]
    """`/logs/artifacts` first, then the task's, then the step's."""
    left_out: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    """What `.harborignore` files keep out of the copies of tests and solution."""


@dataclass(frozen=True, slots=True)
class Document:
    """What only a native `task.md` says: its front matter and its prompts."""

    config: DocumentConfig
    prompts: Prompts


@dataclass(frozen=True, slots=True)
class Task:
    """One benchmark task."""

    path: Path
    file: Path
    layout: LayoutName
    name: str
    config: TaskConfig
    steps: tuple[TaskStep, ...]
    environment_dir: Path | None
    skills_dir: Path | None
    """Skills of the environment on the host; `config.environment.skills_dir` is a path in the sandbox."""
    tests_target: TestsTarget
    solution_target: SolutionTarget
    run: RunHints
    document: Document | None = None
    warnings: tuple[Problem, ...] = ()

    @property
    def stages(self) -> tuple[TaskStep, ...]:
        """What `steps` was called in older releases."""
        return self.steps

    @property
    def short_name(self) -> str:
        """The name without its organisation."""
        return self.name.rpartition("/")[2]

    @property
    def difficulty(self) -> str | None:
        """What `[metadata]` calls the difficulty."""
        return word(self.config.metadata.get("difficulty"))

    @property
    def category(self) -> str | None:
        """What `[metadata]` calls the category."""
        return word(self.config.metadata.get("category"))

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of `[metadata]`, then keywords of `[task]`, each once."""
        task = self.config.task
        return tags_of(self.config.metadata, task.keywords if task else ())

    @property
    def has_solution(self) -> bool:
        """Return whether the oracle agent can run every step."""
        return all(step.solution_dir is not None for step in self.steps)

    def digest(self) -> str:
        """Return a sha256 over the content of everything that makes the task."""
        return digest_tree(self.path, self.file.name)


def run_hints(table: BenchflowConfig) -> RunHints:
    """Return what the task file asks of pytest."""
    return RunHints(table.threshold, table.trials, table.timeout_sec, table.quarantine, table.skip, table.xfail)
