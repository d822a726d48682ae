"""`Task`, what the rest of the package works with, whichever layout it was written in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .digest import digest_tree
from .heads import RunHints
from .names import tags_of, word

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .benchflow_table import BenchflowConfig
    from .config import Artifact, TaskConfig
    from .document import DocumentConfig
    from .environment import EnvironmentConfig, Healthcheck
    from .layout import LayoutName, SolutionTarget, TestsTarget
    from .problems import Problem
    from .prompts import Prompts
    from .strategy import Strategy
    from .values import NetworkMode
    from .verifier import CollectHook, Hardening, Judge


@dataclass(frozen=True, slots=True)
class Network:
    """What a phase may reach."""

    mode: NetworkMode
    allowed_hosts: tuple[str, ...] = ()
    blocked_hosts: tuple[str, ...] = ()
    blocked_urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StageVerifier:
    """How one stage is scored, inheritance applied."""

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

    def directory(self, task: Task) -> Path | None:
        """Return the build context of the environment that the tests run in, None if that is a ready image."""
        if self.mode == "shared":
            return task.environment_dir
        return self.build_dir or (task.environment_dir if self.uploads_tests else None)


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything one step needs; a task without steps has exactly one, whose name is None."""

    name: str | None
    instruction: str
    agent_timeout_sec: float | None
    agent_user: str | int | None
    agent_network: Network
    verifier: StageVerifier
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
    stages: tuple[Stage, ...]
    environment_dir: Path | None
    skills_dir: Path | None
    """Skills of the environment on the host; `config.environment.skills_dir` is a path in the sandbox."""
    tests_target: TestsTarget
    solution_target: SolutionTarget
    run: RunHints
    document: Document | None = None
    warnings: tuple[Problem, ...] = ()

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
        """Say whether the oracle agent can run every stage."""
        return all(stage.solution_dir is not None for stage in self.stages)

    def digest(self) -> str:
        """Return a sha256 over the content of everything that makes the task."""
        return digest_tree(self.path, self.file.name)


def run_hints(table: BenchflowConfig) -> RunHints:
    """Return what the task file asks of pytest."""
    return RunHints(table.threshold, table.trials, table.timeout_sec, table.quarantine, table.skip, table.xfail)
