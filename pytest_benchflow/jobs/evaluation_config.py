"""What all rollouts of an evaluation have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from pytest_benchflow.errors import BadValue
from pytest_benchflow.jobs.retry import RetryConfig
from pytest_benchflow.rollout import RolloutConfig, RolloutFile, Scene, make_config

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
