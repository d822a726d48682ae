"""Which files a configuration asks for in the directory of its task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.compose_file import COMPOSE_FILES
from .needs import Need
from .verifier import VerifierConfig

if TYPE_CHECKING:
    from .config import StepConfig, TaskConfig
    from .layout import Layout


def script(config: TaskConfig, stem: str) -> str:
    """Return the name of a script on the task's operating system."""
    return f"{stem}.bat" if config.environment.os == "windows" else f"{stem}.sh"


def step_prefixes(config: TaskConfig) -> tuple[str, ...]:
    """Return the directory prefix of every stage, "" for a task without steps."""
    return tuple(f"steps/{step.name}/" for step in config.steps) or ("",)


def needs_of(config: TaskConfig, layout: Layout) -> tuple[Need, ...]:
    """List what the task directory must hold for this configuration to run."""
    needs = [] if config.environment.docker_image else [Need("environment", ("environment",))]
    if config.steps:
        needs += [Need("instruction", (f"steps/{step.name}/instruction.md",)) for step in config.steps]
    elif layout.name == "harbor":
        needs.append(Need("instruction", ("instruction.md",)))
    for step in config.steps or (None,):
        if (need := _tests_need(config, layout, step)) is not None and need not in needs:
            needs.append(need)
    return tuple(needs)


def solutions_of(config: TaskConfig, layout: Layout) -> tuple[Need, ...]:
    """List what the oracle agent needs; a step's own solution wins over the task's."""
    solve = script(config, "solve")
    root = f"{layout.solution}/{solve}"
    return tuple(Need("solution", (f"{prefix}{root}", root) if prefix else (root,)) for prefix in step_prefixes(config))


def _tests_need(config: TaskConfig, layout: Layout, step: StepConfig | None) -> Need | None:
    task = config.verifier
    own = step.verifier if step is not None else VerifierConfig()
    environment = own.environment or task.environment
    if (own if "type" in own.model_fields_set else task).type == "llm-judge":
        return Need("rubric", rubric_paths(own if own.judge else task, layout))
    separate = (own if own.says_mode() else task).mode == "separate"
    if separate and environment is not None and environment.docker_image:
        return None
    files = [script(config, "test")]
    if separate:
        files += ["Dockerfile", *COMPOSE_FILES]
    if layout.tests == "verifier":
        files.append("verifier.md")
    folders = [layout.tests] if step is None else [layout.tests, f"steps/{step.name}/{layout.tests}"]
    return Need("tests", tuple(f"{folder}/{file}" for file in files for folder in folders))


def rubric_paths(verifier: VerifierConfig, layout: Layout) -> tuple[str, ...]:
    """Return where the judge's rubric may be; a path that the task names is the only one."""
    if verifier.judge is not None and "rubric_path" in verifier.judge.model_fields_set:
        return (verifier.judge.rubric_path,)
    return (f"{layout.tests}/rubric.toml", f"{layout.tests}/rubric.json")
