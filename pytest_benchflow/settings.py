"""What a run was asked to do, checked: plain data for the rest of the plugin."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

if TYPE_CHECKING:
    from pytest_benchflow.tasks import SourceSpec

N = TypeVar("N", int, float)
KeepSandbox = Literal["never", "failed", "always"]
KEEP_SANDBOX: tuple[KeepSandbox, ...] = get_args(KeepSandbox)
MissingCredentials = Literal["error", "skip"]
MISSING_CREDENTIALS: tuple[MissingCredentials, ...] = get_args(MissingCredentials)
_CONCURRENCY_LIMIT = 16

MAX_TRIALS = 10_000
"""More are a slip of the finger, and would fill the memory before the first of them starts."""
IDLE_TIMEOUT_SEC = 600.0
USER_SETUP_TIMEOUT_SEC = 120.0
INSTRUCTION = "@instruction"
"""Stands for the task's own prompt among others."""


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """One agent of the matrix with the models it is to run; no model means the agent's own default."""

    name: str
    models: tuple[str | None, ...] = (None,)


@dataclass(frozen=True, slots=True)
class Override:
    """Settings for the tasks whose path or name match a pattern."""

    pattern: str
    threshold: float | None = None
    trials: int | None = None
    timeout: float | None = None

    def matches(self, path: str, name: str) -> bool:
        """Tell whether a task, by its path below the root or its name, is meant."""
        return fnmatch(path, self.pattern) or fnmatch(name, self.pattern)


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked settings of a run."""

    agents: tuple[AgentChoice, ...]
    effort: str | None
    scenes: tuple[Path, ...]
    job_file: Path | None
    prompts: tuple[str | None, ...] | None
    sandbox: str
    sandbox_user: str | None
    sandbox_setup_timeout: float
    threshold: float
    trials: int
    concurrency: int | None
    jobs_dir: Path
    job_name: str | None
    json: Path | None
    agent_env: Mapping[str, str]
    verifier_env: Mapping[str, str]
    agent_timeout: float | None
    agent_idle_timeout: float | None
    missing_credentials: MissingCredentials
    timeout_multiplier: float
    sources: tuple[SourceSpec, ...]
    shard: tuple[int, int] | None
    selftest: bool
    dry_run: bool
    report_only: bool
    strict: bool
    force_build: bool
    base_image_override: str | None
    context_root: Path | None
    docker_network: str | None
    keep_sandbox: KeepSandbox
    overrides: tuple[Override, ...] = ()
    given: frozenset[str] = frozenset()
    """Names of the options that somebody set, on the command line or in a file of settings."""

    def override_for(self, path: str, name: str) -> Override:
        """Return what the overrides say of a task; of several that match, the first to speak of a key counts."""
        rows = [row for row in self.overrides if row.matches(path, name)]
        return Override(
            pattern="",
            threshold=_first(row.threshold for row in rows),
            trials=_first(row.trials for row in rows),
            timeout=_first(row.timeout for row in rows),
        )


def _first(values: Iterable[N | None]) -> N | None:
    return next((value for value in values if value is not None), None)


def default_concurrency() -> int:
    """Return how many rollouts fit this machine when nobody says: they wait more than they compute."""
    return min(_CONCURRENCY_LIMIT, 4 * len(os.sched_getaffinity(0)))
