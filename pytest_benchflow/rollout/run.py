"""Run one rollout from plain Python, without pytest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.rollout.config import RolloutConfig
from pytest_benchflow.rollout.resources import Resources
from pytest_benchflow.rollout.rollout import Rollout
from pytest_benchflow.sandboxes import SandboxRegistry

if TYPE_CHECKING:
    from pytest_benchflow.rollout.result import RolloutResult


def make_config(given: Mapping[str, Any]) -> RolloutConfig:
    """Return the configuration of these fields; None leaves one as it is by default, but as a user it is root."""
    said = {key: value for key, value in given.items() if value is not None or key == "sandbox_user"}
    if "skills_dir" in said:
        said.setdefault("skill_mode", "with-skill")
    return RolloutConfig(**said)


async def run_rollout(
    config: RolloutConfig, *, agents: AgentRegistry | None = None, sandboxes: SandboxRegistry | None = None
) -> RolloutResult:
    """Run a rollout to its end; without a job's name it gets a job of its own, called by the time."""
    if agents is None:
        agents = AgentRegistry()
        agents.load_entry_points()
    if config.job_name is None:
        config = replace(config, job_name=time.strftime("%Y-%m-%d__%H-%M-%S"))
    resources = Resources(agents, sandboxes or SandboxRegistry())
    try:
        rollout = await Rollout.create(config, resources)
        return await rollout.run()
    finally:
        await resources.aclose()
