"""Build the stages of a task: what each step inherits, and where its files are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.compose_file import compose_file
from .config import AgentConfig, Artifact, StepConfig, TaskConfig
from .ignored import left_out
from .model import Network, Stage, StageVerifier
from .structure import rubric_paths, script

if TYPE_CHECKING:
    from pathlib import Path

    from .environment import EnvironmentConfig
    from .layout import Layout
    from .strategy import Strategy
    from .values import PhaseNetworkMode
    from .verifier import VerifierConfig

ALWAYS_KEPT = Artifact(source="/logs/artifacts")


def build_stages(
    root: Path, config: TaskConfig, layout: Layout, instructions: tuple[str, ...], strategy: Strategy | None
) -> tuple[Stage, ...]:
    """Return one stage per step, or the one stage of a task without steps; `instructions` match them."""
    steps: tuple[StepConfig | None, ...] = config.steps or (None,)
    return tuple(
        _stage(root, config, layout, step, text, strategy) for step, text in zip(steps, instructions, strict=True)
    )


def _stage(
    root: Path,
    config: TaskConfig,
    layout: Layout,
    step: StepConfig | None,
    text: str,
    strategy: Strategy | None,
) -> Stage:
    own = step.agent if step else AgentConfig()
    agent = config.agent
    folder = root / "steps" / step.name if step else None
    tests = [root / layout.tests] + ([folder / layout.tests] if folder else [])
    tests_dirs = tuple(path for path in tests if path.is_dir())
    solution_dir = _solution(root, folder, layout, script(config, "solve"))
    copied = (*tests_dirs, solution_dir) if solution_dir else tests_dirs
    return Stage(
        name=step.name if step else None,
        instruction="\n\n".join(part for part in (own.prompt_prefix or agent.prompt_prefix, text) if part),
        agent_timeout_sec=own.timeout_sec if own.timeout_sec is not None else agent.timeout_sec,
        agent_user=own.user if own.user is not None else agent.user,
        agent_network=_network(own, agent, config.environment),
        verifier=_verifier(root, config, layout, step, tests_dirs, strategy),
        tests_dirs=tests_dirs,
        test_script=script(config, "test"),
        solution_dir=solution_dir,
        workdir_dir=folder / "workdir" if folder and (folder / "workdir").is_dir() else None,
        min_reward=step.min_reward if step else None,
        healthcheck=step.healthcheck if step else None,
        artifacts=_artifacts((*config.artifacts, *(step.artifacts if step else ()))),
        left_out={path: found for path in copied if (found := left_out(root, path))},
    )


def _verifier(
    root: Path,
    config: TaskConfig,
    layout: Layout,
    step: StepConfig | None,
    tests_dirs: tuple[Path, ...],
    strategy: Strategy | None,
) -> StageVerifier:
    task = config.verifier
    own = step.verifier if step else task
    said = own.model_fields_set
    mode = (own if own.says_mode() else task).mode
    environment = (own.environment or task.environment) if mode == "separate" else None
    image = environment is not None and environment.docker_image is not None
    build_dir = None if image or mode == "shared" else _build_dir(tests_dirs)
    judge = own.judge or task.judge
    kind = own.type if "type" in said else task.type
    return StageVerifier(
        type=kind,
        timeout_sec=own.timeout_sec,
        env={**task.env, **own.env},
        user=own.user if own.user is not None else task.user,
        network=_network(own, task, environment or config.environment),
        mode=mode,
        environment=environment,
        build_dir=build_dir,
        uploads_tests=not image and build_dir is None,
        collect=task.collect if step is None else (*task.collect, *own.collect),
        service=own.service if "service" in said else task.service,
        pytest_plugins=own.pytest_plugins if "pytest_plugins" in said else task.pytest_plugins,
        reward_range=own.reward_range or task.reward_range,
        judge=judge,
        rubric=_rubric(root, own if own.judge else task, layout) if kind == "llm-judge" else None,
        hardening=own.hardening if "hardening" in said else task.hardening,
        strategy=strategy,
        expected_skills=memory.expected_skills if (memory := own.memory or task.memory) else (),
    )


def _network(own: AgentConfig | VerifierConfig, task: AgentConfig | VerifierConfig, base: EnvironmentConfig) -> Network:
    """Return the step's policy, else the task's for the phase, else the environment's."""
    for policy in (own, task):
        mode: PhaseNetworkMode | None = policy.network_mode
        if mode is not None:
            return Network(mode, policy.allowed_hosts or ())
    return Network(base.network_mode, base.allowed_hosts or (), base.blocked_hosts or (), base.blocked_urls or ())


def _artifacts(declared: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    """Return what is kept; a task that declares what is always kept says so in its own way, with `exclude` for one."""
    same = (a.source.rstrip("/") == ALWAYS_KEPT.source and a.service == ALWAYS_KEPT.service for a in declared)
    return declared if any(same) else (ALWAYS_KEPT, *declared)


def _build_dir(tests_dirs: tuple[Path, ...]) -> Path | None:
    """Return the tests directory that describes an image; the step's wins."""
    for folder in reversed(tests_dirs):
        if (folder / "Dockerfile").is_file() or compose_file(folder):
            return folder
    return None


def _solution(root: Path, folder: Path | None, layout: Layout, solve: str) -> Path | None:
    candidates = [folder / layout.solution] if folder else []
    candidates.append(root / layout.solution)
    return next((path for path in candidates if (path / solve).is_file()), None)


def _rubric(root: Path, verifier: VerifierConfig, layout: Layout) -> Path | None:
    return next((root / path for path in rubric_paths(verifier, layout) if (root / path).is_file()), None)
