"""Make a sandbox ready for its agent: which one a task asks for, uploads, setup commands, services, health check."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import filled_variables, resolve_env
from pytest_benchflow.core.errors import BenchflowError, Category, SandboxError, UsageError
from pytest_benchflow.core.secrets import secret_values
from pytest_benchflow.sandboxes import Limits, SandboxSpec, service_of
from pytest_benchflow.tasks import service_mentions

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.sandboxes import Backend, ExecResult, Mount, Sandbox, Service
    from pytest_benchflow.tasks import EnvironmentConfig, Healthcheck, SetupCommand, Task, TaskStep


def agent_spec(task: Task, config: RolloutConfig, name: str, mounts: tuple[Mount, ...] = ()) -> SandboxSpec:
    """Return the sandbox the agent works in."""
    where = f"{task.file}: [environment.env]"
    return replace(_spec(task.config.environment, task.environment_dir, config, name, where), mounts=mounts)


def verifier_spec(task: Task, step: TaskStep, config: RolloutConfig, name: str) -> SandboxSpec:
    """Return the sandbox of a separate verifier: its own image, the tests' Dockerfile, or a fresh agent environment."""
    environment = step.verifier.environment or task.config.environment
    spec = _spec(
        environment,
        step.verifier.directory(task),
        config,
        name,
        f"{task.file}: [verifier.environment.env]",
    )
    return replace(spec, network=step.verifier.network.mode != "no-network")


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


async def must(
    service: Service,
    command: str,
    timeout_sec: float,
    *,
    user: str | int | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a command of the task's own that has to succeed."""
    try:
        done = await service.exec(command, user=user, cwd=cwd, env=env, timeout_sec=timeout_sec)
    except TimeoutError:
        raise SandboxError(f"{command!r} did not end within {timeout_sec:g} s", retryable=False) from None
    if done.return_code:
        said = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise SandboxError(f"{command!r} ended with status {done.return_code}: {said}", retryable=False)


async def run_setup_commands(sandbox: Sandbox, commands: Sequence[SetupCommand], where: str) -> None:
    """Run the commands that prepare an environment, each in its service; `where` names their table in messages."""
    for setup in commands:
        env = resolve_env(setup.env, os.environ, where)
        service = service_of(sandbox, setup.service)
        await must(service, setup.command, setup.timeout_sec, user=setup.user, cwd=setup.cwd, env=env)


async def wait_until_healthy(sandbox: Sandbox, check: Healthcheck) -> None:
    """Probe until one try succeeds; tries that fail within the start period do not count."""
    started = time.monotonic()
    counted = 0
    while True:
        in_start_period = time.monotonic() - started < check.start_period_sec
        failure = await _probe(sandbox, check)
        if failure is None:
            return
        if not in_start_period:
            counted += 1
            if counted >= max(1, check.retries):
                raise BenchflowError(
                    f"healthcheck {check.command!r} failed {counted} times: {failure}",
                    category=Category.HEALTHCHECK,
                )
        await asyncio.sleep(check.start_interval_sec if in_start_period else check.interval_sec)


async def _probe(sandbox: Sandbox, check: Healthcheck) -> str | None:
    try:
        done = await sandbox.exec(check.command, timeout_sec=check.timeout_sec)
    except TimeoutError:
        return f"no answer within {check.timeout_sec:g} s"
    return None if done.return_code == 0 else _said(done)


def _said(done: ExecResult) -> str:
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    return f"exit status {done.return_code}" + (f", {last[0][:200]}" if last else "")


async def put_uploads(sandbox: Sandbox, uploads: Mapping[str | Path, str]) -> None:
    """Copy host files and directories to where the configuration wants them."""
    for given, target in uploads.items():
        source = Path(given)
        if source.is_dir():
            await sandbox.upload_dir(source, target)
        elif source.is_file():
            await sandbox.upload_file(source, target)
        else:
            raise UsageError(f"uploads: {source} does not exist", advice="name a file or directory of this machine")


def check_services(sandbox: Sandbox, task: Task) -> None:
    """Refuse services that a started sandbox does not have, where only compose could tell."""
    for path, service, directory in service_mentions(task):
        try:
            if directory == task.environment_dir:
                service_of(sandbox, service)
        except UsageError as error:
            key = ".".join(role_agent for role_agent in path if isinstance(role_agent, str))
            raise UsageError(f"{task.file}: {key} is {service!r}: {error.message}", advice=error.advice) from None


async def run_hooks(sandbox: Sandbox, config: RolloutConfig) -> None:
    """Await the hooks in order; one that fails fails the rollout."""
    for hook in config.pre_agent_hooks:
        try:
            await hook(sandbox)
        except BenchflowError:
            raise
        except Exception as error:
            name = getattr(hook, "__name__", type(hook).__name__)
            raise SandboxError(f"hook {name}: {type(error).__name__}: {error}", retryable=False) from error


def secrets_handed_out(task: Task, config: RolloutConfig, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the secrets that a configuration gives to a sandbox, or a task takes from the runner's environment."""
    tables = [task.config.solution.env, *(step.verifier.env for step in task.steps)]
    for environment in (task.config.environment, *(step.verifier.environment for step in task.steps)):
        if environment is not None:
            tables += [environment.env, *(command.env for command in environment.setup_commands)]
    filled = (filled_variables(table, environ) for table in tables)
    return frozenset().union(*map(secret_values, (config.agent_env, config.verifier_env, *filled)))
