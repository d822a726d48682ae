"""What is made ahead of rollouts: the images of their environments and the programs of their agents, each once."""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.rollout.scenes import scenes_of
from pytest_benchflow.rollout.setup import agent_spec
from pytest_benchflow.sandboxes import BuildsAhead

if TYPE_CHECKING:
    from pytest_benchflow.agents import Agent
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.resources import Resources
    from pytest_benchflow.tasks import Task


async def prepare_rollout(config: RolloutConfig, task: Task, resources: Resources) -> None:
    """Build and install what a rollout will need, unless it is there; what fails, the rollout itself will tell."""
    roles = [role for scene in scenes_of(config, task) for role in scene.roles]
    agents = {agent.name: agent for agent in (resources.agents.get(role.agent) for role in roles)}
    environment = (str(task.path), config.sandbox, config.base_image_override or "", str(config.context_root or ""))
    await asyncio.gather(
        resources.once(("environment", *environment), partial(_build, config, task, resources)),
        *(resources.once(("agent", name), partial(_install, agent)) for name, agent in agents.items()),
        return_exceptions=True,
    )


async def _build(config: RolloutConfig, task: Task, resources: Resources) -> None:
    backend = await resources.backend(config.sandbox)
    if isinstance(backend, BuildsAhead):
        directory = await resources.build_context(task, config)
        await backend.build(agent_spec(task, config, task.short_name, build_dir=directory))


async def _install(agent: Agent) -> None:
    with tempfile.TemporaryDirectory(prefix="benchflow-install-") as log_dir:  # every rollout has a copy of the log
        await agent.prepare_on_host(Path(log_dir))
