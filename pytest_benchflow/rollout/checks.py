"""Checks before anything starts: errors for what cannot be done here, notes for what has no effect."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.configfile import filled_variables, resolve_env
from pytest_benchflow.core.errors import CannotRunHere, UnsupportedError, UsageError
from pytest_benchflow.core.files import compose_file
from pytest_benchflow.core.secrets import secret_values
from pytest_benchflow.tasks import environment_problem, service_mentions

if TYPE_CHECKING:
    from pytest_benchflow.agents import Agent
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.sandboxes import Backend, Capabilities
    from pytest_benchflow.tasks import EnvironmentConfig, Task


_ROOT = (None, 0, "0", "root")
_POLICIES = ("environment", "verifier", "secrets", "runtime_policy")
#: Rules that only concern agents which call a model.
_POLICIES_OF_AGENTS = ("agent_policy", "nudges", "teams")


def check_rollout(task: Task, config: RolloutConfig, backend: Backend, agents: Sequence[Agent]) -> None:
    """Raise if a rollout cannot run here as its task asks for."""
    refuse_unsupported(task, backend, agents)
    refuse_document_user(task, config)
    require_variables(task)


def refuse_unsupported(task: Task, backend: Backend, agents: Sequence[Agent] = ()) -> None:
    """Raise one error that names every key this backend cannot honour."""
    _skip_windows(task, backend)
    if (problem := environment_problem(task)) is not None:
        raise UsageError(f"{task.file}: {problem.reason}", advice=problem.fix)
    can = _capabilities(task, backend)
    _require_network(task, can, agents)
    _refuse_policies(task, agents)
    problems = [
        *_environment("environment", task.config.environment, can, builds=_has_dockerfile(task)),
        *_steps(task, can),
        *_services(task, can),
        *_users(task, can),
    ]
    if problems:
        raise UnsupportedError(
            f"{task.file}: the {backend.name} sandbox does not support {', '.join(dict.fromkeys(problems))}",
            advice="choose another --bf-sandbox" if backend.capabilities.docker_image else "use --bf-sandbox docker",
        )


def refuse_document_user(task: Task, config: RolloutConfig) -> None:
    """Refuse a simulated user that the task describes, unless the configuration replaces it."""
    asks = task.document is not None and task.document.config.user is not None
    own = config.scenes or config.prompts is not None or config.user is not None or config.loop_strategy is not None
    if asks and not own and config.agent not in FREE_AGENTS:
        raise UnsupportedError(
            f"{task.file}: user: describes a simulated user, which is not played here",
            advice="bring your own with user: in a --bf-scene file, or give --bf-prompt",
        )


def require_variables(task: Task) -> None:
    """Refuse a task that takes variables from the runner's environment which are not set there."""
    environment = task.config.environment
    tables = [("environment.env", environment.env)]
    tables += [("environment.setup_commands.env", command.env) for command in environment.setup_commands]
    for verifier in (step.verifier for step in task.steps):
        tables.append(("verifier.env", verifier.env))
        if (own := verifier.environment) is not None:
            tables.append(("verifier.environment.env", own.env))
            tables += [("verifier.environment.setup_commands.env", command.env) for command in own.setup_commands]
    for name, table in tables:
        resolve_env(table, os.environ, f"{task.file}: [{name}]")


def _skip_windows(task: Task, backend: Backend) -> None:
    if task.config.environment.os == "windows" and not backend.capabilities.windows:
        raise CannotRunHere(f'[environment] os = "windows": the {backend.name} sandbox runs Linux')


def _require_network(task: Task, can: Capabilities, agents: Sequence[Agent]) -> None:
    if can.allowlist:
        return
    online = [agent.name for agent in agents if agent.calls_model]
    if online and any(step.agent_network.mode == "no-network" for step in task.steps):
        raise UnsupportedError(
            f'{task.file}: network_mode is "no-network", and {online[0]} cannot reach its model without a network',
            advice="run oracle or nop here, or use --bf-sandbox local",
        )


def _refuse_policies(task: Task, agents: Sequence[Agent]) -> None:
    """Refuse rules of the [benchflow] table that are not enforced here: without them scores mean something else."""
    keys = (*_POLICIES, *(_POLICIES_OF_AGENTS if any(agent.calls_model for agent in agents) else ()))
    if rules := [_rule(task, key) for key in keys if getattr(task.config.benchflow, key)]:
        raise UnsupportedError(
            f"{task.file}: [benchflow] {', '.join(rules)}: not supported here",
            advice="leave it out, or run another task",
        )


def _rule(task: Task, key: str) -> str:
    """Name a rule, and what it asks for if others have to know."""
    if key != "environment":
        return key
    from pytest_benchflow.tasks import service_request

    return f"{key} {service_request(task.config.benchflow.environment, task.path)}"


def _environment(where: str, environment: EnvironmentConfig, can: Capabilities, *, builds: bool) -> Iterator[str]:
    if environment.gpus and not can.gpus:
        yield f"[{where}] gpus"
    if environment.gpus and environment.gpu_types:
        yield f"[{where}] gpu_types"
    if environment.tpu is not None:
        yield f"[{where}] tpu"
    if not _can_restrict(environment.network_mode, can):
        yield f'[{where}] network_mode = "{environment.network_mode}"'
    if any(urlsplit(url if "://" in url else f"//{url}").path.strip("/") for url in environment.blocked_urls or ()):
        yield f"[{where}] blocked_urls with a path, which nobody sees in an encrypted connection: block the host"
    if environment.docker_image and not can.docker_image and not builds:
        yield f"[{where}] docker_image"
    for command in environment.setup_commands:
        if command.host_lock or command.capture_dir:
            yield f"[[{where}.setup_commands]] host_lock or capture_dir"
        if command.user not in _ROOT and not can.users:
            yield f"[[{where}.setup_commands]] user"


def _capabilities(task: Task, backend: Backend) -> Capabilities:
    """Return what the backend can do for this task: what a service of a compose project reaches, that alone says."""
    can = backend.capabilities
    return can if compose_file(task.environment_dir) is None else replace(can, allowlist=False)


def _steps(task: Task, can: Capabilities) -> Iterator[str]:
    baseline = task.config.environment.network
    if not can.compose and (file := compose_file(task.environment_dir)) is not None:
        yield f"environment/{file.name}"
    for step in task.steps:
        verifier = step.verifier
        if step.agent_network != baseline and not can.allowlist:
            yield f'[agent] network_mode = "{step.agent_network.mode}" beside "{baseline.mode}" of the environment'
        if verifier.strategy is not None and verifier.strategy.type not in ("script", "llm-judge"):
            yield f'verifier strategy type "{verifier.strategy.type}"'
        if verifier.mode == "shared" and verifier.network != baseline and not can.allowlist:
            yield f'[verifier] network_mode = "{verifier.network.mode}" beside "{baseline.mode}" of the environment'
        if verifier.mode == "separate" and not _can_restrict(verifier.network.mode, can):
            yield f'[verifier] network_mode = "{verifier.network.mode}"'
        if verifier.environment is not None:
            yield from _environment("verifier.environment", verifier.environment, can, builds=False)
            if verifier.environment.os == "windows" and not can.windows:
                yield '[verifier.environment] os = "windows"'
        if not can.compose and (file := compose_file(verifier.build_dir)) is not None:
            yield f"{file.parent.name}/{file.name}"


def _services(task: Task, can: Capabilities) -> Iterator[str]:
    """Yield the keys that name another service than main, for sandboxes without services."""
    for path, service, _ in () if can.services else service_mentions(task):
        table = ".".join(part for part in path[:-1] if isinstance(part, str))
        yield f'{f"[[{table}]]" if isinstance(path[-2], int) else f"[{table}]"} {path[-1]} = "{service}"'


def _users(task: Task, can: Capabilities) -> Iterator[str]:
    """Yield the keys that name a user, for sandboxes where only root exists."""
    if can.users:
        return
    for step in task.steps:
        if step.agent_user not in _ROOT:
            yield "[agent] user"
        if step.verifier.user not in _ROOT:
            yield "[verifier] user"
        if any(hook.user not in _ROOT for hook in step.verifier.collect):
            yield "[[verifier.collect]] user"


def _can_restrict(mode: str, can: Capabilities) -> bool:
    return {"public": True, "no-network": can.no_network}.get(mode, can.allowlist)


def _has_dockerfile(task: Task) -> bool:
    return task.environment_dir is not None and (task.environment_dir / "Dockerfile").exists()


def override_notes(task: Task, config: RolloutConfig) -> list[str]:
    """Return a note if --bf-base-image-override was given and has no effect."""
    if config.base_image_override is None:
        return []
    if task.environment_dir is None or not (task.environment_dir / "Dockerfile").is_file():
        return ["--bf-base-image-override has no effect on tasks without a Dockerfile"]
    return []


def ignored_key_notes(task: Task, agents: Sequence[Agent]) -> list[str]:
    """Return a note for every key of the task that has no effect here and does not change what its score means."""
    return [f"{task.short_name}: {note}" for note in dict.fromkeys(_ignored_keys(task, agents))]


def _ignored_keys(task: Task, agents: Sequence[Agent]) -> Iterator[str]:
    # What is wrong with a line of the task file is told where it is collected.
    files = [problem for problem in task.warnings if problem.line is None]
    yield from (f"{os.path.relpath(problem.file, task.path)} {problem.text}" for problem in files)
    if task.config.reward:
        yield "[reward] has no effect: the verifier's reward counts as it is"
    if any(agent.calls_model for agent in agents):
        yield from _agent_keys(task.config.environment)
    yield from _environment_keys("environment", task.config.environment)
    for verifier in (step.verifier for step in task.steps):
        if verifier.pytest_plugins:
            yield "[verifier] pytest_plugins has no effect: pytest loads the plugins that the verifier's image has"
        if verifier.expected_skills:
            yield "[verifier.memory] expected_skills is not checked"
        if verifier.environment is not None:
            yield from _environment_keys("verifier.environment", verifier.environment)
            for key in ("mcp_servers", "skills_dir"):
                if getattr(verifier.environment, key):
                    yield f"[verifier.environment] {key} has no effect: no agent works there"


def _agent_keys(environment: EnvironmentConfig) -> Iterator[str]:
    if environment.skills_dir:
        yield "[environment] skills_dir is not given to the agent"
    for key in ("tools", "include_tags", "exclude_tags"):
        if any(getattr(server, key) for server in environment.mcp_servers):
            yield f"[[environment.mcp_servers]] {key} has no effect: the agent gets all tools of the server"


def _environment_keys(where: str, environment: EnvironmentConfig) -> Iterator[str]:
    if environment.gpu_types and not environment.gpus:
        yield f"[{where}] gpu_types has no effect without gpus"


def configured_secrets(task: Task, config: RolloutConfig, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the secrets that the configuration or the task, from the runner's environment, passes to a sandbox."""
    tables = [task.config.solution.env, *(step.verifier.env for step in task.steps)]
    for environment in (task.config.environment, *(step.verifier.environment for step in task.steps)):
        if environment is not None:
            tables += [environment.env, *(command.env for command in environment.setup_commands)]
    filled = (filled_variables(table, environ) for table in tables)
    return frozenset().union(*map(secret_values, (config.agent_env, config.verifier_env, *filled)))
