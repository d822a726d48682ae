"""Which sandboxes a task asks for: one for the agent, and another one where the verifier wants its own."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_benchflow.sandboxes import Limits, SandboxSpec
from pytest_benchflow.tasks import resolve_env

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.sandboxes import Backend, Mount
    from pytest_benchflow.tasks import EnvironmentConfig, Stage, Task


def agent_spec(task: Task, config: RolloutConfig, name: str, mounts: tuple[Mount, ...] = ()) -> SandboxSpec:
    """Return the sandbox the agent works in."""
    where = f"{task.file}: [environment.env]"
    return replace(_spec(task.config.environment, task.environment_dir, config, name, where), mounts=mounts)


def verifier_spec(task: Task, stage: Stage, config: RolloutConfig, name: str) -> SandboxSpec:
    """Return the sandbox of a separate verifier: its own image, the tests' Dockerfile, or a fresh agent environment."""
    environment = stage.verifier.environment or task.config.environment
    spec = _spec(
        environment,
        stage.verifier.directory(task),
        config,
        name,
        f"{task.file}: [verifier.environment.env]",
    )
    return replace(spec, network=stage.verifier.network.mode != "no-network")


def override_notes(task: Task, config: RolloutConfig, backend: Backend) -> list[str]:
    """Return why another base image has no effect, if it was asked for and has none."""
    if config.base_image_override is None:
        return []
    if not backend.capabilities.docker_image:
        return [f"--bf-base-image-override has no effect in the {backend.name} sandbox, where FROM is the host"]
    if task.environment_dir is None or not (task.environment_dir / "Dockerfile").is_file():
        return ["--bf-base-image-override has no effect on tasks without a Dockerfile"]
    return []


def _spec(
    environment: EnvironmentConfig, directory: Path | None, config: RolloutConfig, name: str, where: str
) -> SandboxSpec:
    # A prebuilt image stands on the base that is to be replaced.
    builds = config.base_image_override is not None and directory is not None and (directory / "Dockerfile").is_file()
    return SandboxSpec(
        name=name,
        environment_dir=directory,
        docker_image=None if builds else environment.docker_image,
        env=resolve_env(environment.env, os.environ, where),
        workdir=environment.workdir,
        network=environment.network_mode != "no-network",
        limits=Limits(environment.cpus, environment.memory_mb, environment.storage_mb, environment.gpus),
        build_timeout_sec=environment.build_timeout_sec * config.timeout_multiplier,
        force_build=config.force_build,
    )
