"""Run one rollout from plain Python, without pytest."""

from __future__ import annotations

import time
from pathlib import Path

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.errors import UsageError
from pytest_benchflow.rollout.config import RolloutConfig
from pytest_benchflow.rollout.resources import Resources
from pytest_benchflow.rollout.result import RolloutResult
from pytest_benchflow.rollout.rollout import Rollout
from pytest_benchflow.sandboxes import SandboxRegistry


async def run(
    subject: str | RolloutConfig,
    *,
    task_path: str | Path | None = None,
    model: str | None = None,
    sandbox: str = "auto",
) -> RolloutResult:
    """Run a rollout: of a configuration, or of an agent by name on `task_path`."""
    if isinstance(subject, RolloutConfig):
        config = subject
    elif task_path is None:
        raise UsageError(f"run({subject!r}) names no task", advice="pass task_path=")
    else:
        job = time.strftime("%Y-%m-%d__%H-%M-%S")
        config = RolloutConfig(task_path=Path(task_path), agent=subject, model=model, sandbox=sandbox, job_name=job)
    agents = AgentRegistry()
    agents.load_entry_points()
    resources = Resources(agents, SandboxRegistry())
    try:
        rollout = await Rollout.create(config, resources)
        return await rollout.run()
    finally:
        await resources.aclose()
