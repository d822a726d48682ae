"""Files that a task requires, in a form small enough to cache and cheap enough to check at every collection."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_benchflow.configfile import Problem
from pytest_benchflow.core.files import COMPOSE_FILE, compose_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_benchflow.tasks.layout import Layout
    from pytest_benchflow.tasks.models import Judge, StepConfig, TaskConfig, VerifierConfig
    from pytest_benchflow.tasks.task import Task


Kind = Literal["environment", "instruction", "tests", "rubric", "solution"]

_FIXES: dict[str, str] = {
    "environment": "create environment/Dockerfile there, or name an image with docker_image",
    "instruction": "write there what the agent has to do",
    "tests": "create a script that writes the reward to /logs/verifier/reward.txt",
    "rubric": "write the criteria of the judge there",
}

_CLOSED = "cannot be read (Permission denied)"


class RequiredFile(NamedTuple):
    """One of several relative paths has to exist: a directory for `environment`, a file for the rest."""

    kind: Kind
    paths: tuple[str, ...]

    def exists(self, directory: str) -> bool:
        """Return whether one of the paths is there, by `stat` alone."""
        # No generator: this runs four times for each of ten thousand tasks.
        for path in self.paths:  # noqa: SIM110
            if self._fault(directory, path) is None:
                return True
        return False

    def problem(self, directory: str) -> Problem:
        """Say what is missing, after `exists` returned False."""
        reason = self._fault(directory, self.paths[0]) or "is missing"
        fix = "check its permissions" if reason == _CLOSED else _FIXES.get(self.kind)
        return Problem(os.path.join(directory, self.paths[0]), None, None, reason, fix)

    def _fault(self, directory: str, path: str) -> str | None:
        try:
            status = os.stat(f"{directory}/{path}")
        except PermissionError:
            return _CLOSED
        except (OSError, ValueError):
            return "is missing"
        if self.kind == "environment":
            return None if stat.S_ISDIR(status.st_mode) else "is not a directory"
        if not stat.S_ISREG(status.st_mode):
            return "is not a file"
        return "is empty" if self.kind == "instruction" and status.st_size == 0 else None


def missing_files(directory: str, files: Iterable[RequiredFile]) -> list[Problem]:
    """Return a problem for every required file that the directory does not have."""
    return [file.problem(directory) for file in files if not file.exists(directory)]


def environment_problem(task: Task) -> Problem | None:
    """Say that an environment only has files: on some base of ours the task's score would mean something else.

    Such a task can be collected, as elsewhere, but not run.
    """
    directory = task.environment_dir
    if task.config.environment.docker_image or directory is None:
        return None
    if (directory / "Dockerfile").exists() or compose_file(directory) is not None:
        return None
    reason = f"{directory.name}/ has no Dockerfile and no {COMPOSE_FILE}"
    return Problem(str(task.file), None, None, reason, "write one, or name an image with [environment] docker_image")


def script(config: TaskConfig, stem: str) -> str:
    """Return the name of a script on the task's operating system."""
    return f"{stem}.bat" if config.environment.os == "windows" else f"{stem}.sh"


def step_prefixes(config: TaskConfig) -> tuple[str, ...]:
    """Return the directory prefix of every step, "" for a task without steps."""
    return tuple(f"steps/{step.name}/" for step in config.steps) or ("",)


def required_files(config: TaskConfig, layout: Layout) -> tuple[RequiredFile, ...]:
    """List what the task directory must hold for this configuration to run."""
    files = [] if config.environment.docker_image else [RequiredFile("environment", ("environment",))]
    if config.steps:
        files += [RequiredFile("instruction", (f"steps/{step.name}/instruction.md",)) for step in config.steps]
    elif layout.name == "harbor":
        files.append(RequiredFile("instruction", ("instruction.md",)))
    for step in config.steps or (None,):
        if (tests := _tests_file(config, layout, step)) is not None and tests not in files:
            files.append(tests)
    return tuple(files)


def solution_files(config: TaskConfig, layout: Layout) -> tuple[RequiredFile, ...]:
    """List what the oracle agent requires; a step's own solution wins over the task's."""
    solve = script(config, "solve")
    root = f"{layout.solution}/{solve}"
    return tuple(
        RequiredFile("solution", (f"{prefix}{root}", root) if prefix else (root,)) for prefix in step_prefixes(config)
    )


def _tests_file(config: TaskConfig, layout: Layout, step: StepConfig | None) -> RequiredFile | None:
    task = config.verifier
    from pytest_benchflow.tasks.models import VerifierConfig  # what collection reads must do without the models

    own = step.verifier if step is not None else VerifierConfig()
    environment = own.environment or task.environment
    if (own if "type" in own.model_fields_set else task).type == "llm-judge":
        return RequiredFile("rubric", rubric_paths(own if own.judge else task, layout, step))
    separate = (own if own.says_mode() else task).mode == "separate"
    if separate and environment is not None and environment.docker_image:
        return None
    names = [script(config, "test")]
    if separate:
        names += ["Dockerfile", COMPOSE_FILE]
    if layout.tests == "verifier":
        names.append("verifier.md")
    folders = [layout.tests] if step is None else [layout.tests, f"steps/{step.name}/{layout.tests}"]
    return RequiredFile("tests", tuple(f"{folder}/{name}" for name in names for folder in folders))


def strategy_rubrics(judge: Judge) -> tuple[str, ...]:
    """Return where the rubric of a strategy's judge may be, below the verifier's directory."""
    if "rubric_path" in judge.model_fields_set:
        return (judge.rubric_path,)
    return ("rubrics/verifier.toml", "rubrics/verifier.json", "rubric.toml", "rubric.json")


def rubric_paths(verifier: VerifierConfig, layout: Layout, step: StepConfig | None) -> tuple[str, ...]:
    """Return where the judge's rubric may be, below the step's directory or the task's; one that is named is there."""
    if verifier.judge is not None and "rubric_path" in verifier.judge.model_fields_set:
        names: tuple[str, ...] = (verifier.judge.rubric_path,)
    else:
        names = (f"{layout.tests}/rubric.toml", f"{layout.tests}/rubric.json")
    return names if step is None else (*(f"steps/{step.name}/{name}" for name in names), *names)
