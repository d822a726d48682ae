"""The compose services that a task names beside `main`: each has to be in the file that describes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_benchflow.configfile import Problem, TaskError, quoted, read_text
from pytest_benchflow.core.files import COMPOSE_FILE, compose_file
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.tasks.legacy_keys import as_written

if TYPE_CHECKING:
    from pytest_benchflow.configfile import Path as KeyPath, Source
    from pytest_benchflow.tasks.models import EnvironmentConfig, StepConfig, TaskConfig
    from pytest_benchflow.tasks.task import Task, TaskStep


MAIN = "main"


class Mention(NamedTuple):
    """A key that names a service."""

    path: KeyPath
    service: str
    directory: Path | None
    """Where the compose file that has it should be."""


def service_mentions(task: Task) -> list[Mention]:
    """List the keys that name another service than main, each once."""
    mentions = [*_of_agent(task), *(mention for step in task.steps for mention in _of_verifier(task, step))]
    return list(dict.fromkeys(mention for mention in mentions if mention.service != MAIN))


def service_problems(task: Task, source: Source) -> list[Problem]:
    """Report the services that a task names and does not have."""
    known: dict[Path | None, list[str] | None] = {}
    problems = []
    for path, service, directory in service_mentions(task):
        if directory not in known:
            known[directory] = _services(compose_file(directory))
        names = known[directory]
        if names is not None and service not in names:
            written = as_written(source.data, path)
            reason, fix = _explain(service, names, compose_file(directory), directory, task.path)
            problems.append(Problem(source.file, source.line(written), source.key(written), reason, fix))
    return problems


def _of_agent(task: Task) -> Iterator[Mention]:
    config, directory = task.config, task.environment_dir
    yield from _of_setup(config.environment, ("environment",), directory)
    levels: list[tuple[KeyPath, TaskConfig | StepConfig]] = [((), config)]
    levels += [(("steps", n), step) for n, step in enumerate(config.steps)]
    for at, level in levels:
        for n, artifact in enumerate(level.artifacts):
            yield Mention((*at, "artifacts", n, "service"), artifact.service, directory)
        for n, hook in enumerate(level.verifier.collect):
            yield Mention((*at, "verifier", "collect", n, "service"), hook.service, directory)


def _of_verifier(task: Task, step: TaskStep) -> Iterator[Mention]:
    """Yield what the verifier of a step wants, which may have services of its own."""
    directory = step.verifier.directory(task.environment_dir)
    yield Mention((*_said_at(task.config, step, "service"), "service"), step.verifier.service, directory)
    if step.verifier.environment is not None:
        at = (*_said_at(task.config, step, "environment"), "environment")
        yield from _of_setup(step.verifier.environment, at, directory)


def _of_setup(environment: EnvironmentConfig, at: KeyPath, directory: Path | None) -> Iterator[Mention]:
    for n, command in enumerate(environment.setup_commands):
        yield Mention((*at, "setup_commands", n, "service"), command.service, directory)


def _said_at(config: TaskConfig, step: TaskStep, key: str) -> KeyPath:
    """Return which verifier table a step has a setting from: its own, or the task's."""
    for n, table in enumerate(config.steps):
        if table.name == step.name and key in table.verifier.model_fields_set:
            return ("steps", n, "verifier")
    return ("verifier",)


def _services(file: Path | None) -> list[str] | None:
    """Return the services of a compose file, main always; None if only compose itself could tell."""
    if file is None:
        return [MAIN]
    from pytest_benchflow.configfile import YamlSource

    try:
        data = YamlSource(str(file), read_text(str(file))).data
    except TaskError:
        return None
    services = data.get("services", {})
    if "include" in data or not isinstance(services, dict):
        return None
    return list(dict.fromkeys([MAIN, *services]))


def _explain(service: str, known: list[str], file: Path | None, directory: Path | None, root: Path) -> tuple[str, str]:
    if file is not None:
        return f"is {quoted(service)}, no service of {file.relative_to(root)}", did_you_mean(service, known)
    place = f"{directory.relative_to(root) if directory is not None else 'environment'}/{COMPOSE_FILE}"
    return f"is {quoted(service)}, but there is no {place}", "describe the service there, or leave the key out"
