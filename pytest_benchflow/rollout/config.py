"""The configuration of one rollout: one agent on one task, once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

KeepSandbox = Literal["never", "failed", "always"]


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """Everything that decides what a rollout does; `config.json` is written from it before anything starts."""

    task_path: Path
    agent: str = "oracle"
    model: str | None = None
    sandbox: str = "auto"
    trial: int = 1
    threshold: float = 1.0
    timeout: float | None = None
    """Seconds for the agent; None leaves the task's own limit, which may be none at all."""
    timeout_multiplier: float = 1.0
    agent_env: Mapping[str, str] = field(default_factory=dict)
    verifier_env: Mapping[str, str] = field(default_factory=dict)
    force_build: bool = False
    base_image_override: str | None = None
    """Image that the task's Dockerfile stands on instead of its own."""
    context_root: Path | None = None
    """Where files come from that the Dockerfile copies and its directory does not have."""
    keep_sandbox: KeepSandbox = "never"
    """When to leave the sandbox for inspection; an interrupted rollout leaves none."""
    jobs_dir: Path = Path("jobs")
    job_name: str | None = None
    rollout_name: str | None = None
    """Name of the result directory; None derives `<task>__<8 hex>`."""
    key: str = ""
    """Identifies the rollout within its job, for example the item's id; its result directory derives from it."""

    def name_for(self, task_name: str, attempt: int = 1) -> str:
        """Return the rollout's name: stable for the same key and attempt, distinct within a job."""
        if self.rollout_name:
            return self.rollout_name if attempt == 1 else f"{self.rollout_name}-{attempt}"
        key = self.key or f"{self.task_path}|{self.agent}|{self.model}|{self.trial}"
        return f"{task_name[:64]}__{hashlib.sha256(f'{key}#{attempt}'.encode()).hexdigest()[:8]}"

    def keeps_sandbox(self, *, passed: bool) -> bool:
        """Say whether a sandbox is to be left after a rollout that ended so."""
        return self.keep_sandbox == "always" or (self.keep_sandbox == "failed" and not passed)

    def public(self) -> dict[str, object]:
        """Return what may be written to disk: of the environments only the names."""
        return {
            "task_path": str(self.task_path),
            "agent": self.agent,
            "model": self.model,
            "sandbox": self.sandbox,
            "trial": self.trial,
            "threshold": self.threshold,
            "timeout": self.timeout,
            "timeout_multiplier": self.timeout_multiplier,
            "agent_env": sorted(self.agent_env),
            "verifier_env": sorted(self.verifier_env),
            "force_build": self.force_build,
            "base_image_override": self.base_image_override,
            "context_root": None if self.context_root is None else str(self.context_root),
            "keep_sandbox": self.keep_sandbox,
            "key": self.key,
        }
