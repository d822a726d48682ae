"""Load a task: read, parse, validate, check the directory, apply inheritance."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import Problem, TaskError, TomlSource, as_errors, in_order, read_text, validate_model
from pytest_benchflow.core.files import COMPOSE_FILE, is_copied
from pytest_benchflow.tasks.compose_services import service_problems
from pytest_benchflow.tasks.digest import IGNORE_FILE, parts
from pytest_benchflow.tasks.layout import Layout, layout_of, tags_of, task_file, word
from pytest_benchflow.tasks.legacy_keys import ROOT, TaskKeys
from pytest_benchflow.tasks.models import TaskConfig
from pytest_benchflow.tasks.prompts import Prompts, read_prompts, without_canary
from pytest_benchflow.tasks.required_files import (
    RequiredFile,
    missing_files,
    required_files,
    script,
    solution_files,
    strategy_rubrics,
)
from pytest_benchflow.tasks.summary import TaskSummary
from pytest_benchflow.tasks.task import Document, Task, build_steps, run_hints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_benchflow.configfile import Source
    from pytest_benchflow.tasks.native import Strategy


@dataclass(frozen=True, slots=True)
class Parsed:
    """A task file that is well formed as far as it goes; `config` is None if the problems are too many."""

    source: Source
    config: TaskConfig | None
    problems: list[Problem]
    body: str = ""


_HARBOR = frozenset(TaskConfig.model_fields) | frozenset(ROOT)
_GENERIC = frozenset({"name", "version", "source", "user", "image", "metadata"})
_SIBLINGS = ("environment", "tests", "instruction.md")
#: How many files are named that cannot be used: a whole tree may have been linked or copied in.
_SHOWN_FILES = 5
_NATIVE_SIBLINGS = ("environment", "verifier", "oracle", "tests")


def has_shape(data: Mapping[str, object], *, native: bool) -> bool:
    """Return whether a file has a key of a task; note files with front matter often share the generic ones."""
    return not (_native_keys() - _GENERIC if native else _HARBOR).isdisjoint(data)


def _native_keys() -> frozenset[str]:
    from pytest_benchflow.tasks.document import DocumentConfig

    return frozenset(DocumentConfig.model_fields) | frozenset(ROOT) | {"image"}


def has_siblings(directory: str, *, native: bool) -> bool:
    """Return whether the directory holds another part of a task."""
    names = _NATIVE_SIBLINGS if native else _SIBLINGS
    return any(os.path.lexists(f"{directory}/{name}") for name in names)


def load_task(path: Path | str, *, strict: bool = False) -> Task:
    """Load the task in a directory, or of a task file; raise TaskError with everything that is wrong."""
    directory, file = _locate(os.fspath(path))
    parsed = parse_file(file)
    problems = list(parsed.problems)
    layout = layout_of(directory, file)
    prompts = Prompts()
    strategy: Strategy | None = None
    instructions: tuple[str, ...] = ()
    if parsed.config is not None:
        problems += missing_files(directory, required_files(parsed.config, layout))
        problems += _unusable(directory, file)
        problems += _unread_compose(directory)
        problems += _services_asked_for(parsed.source, parsed.config, Path(directory))
        try:
            if layout.name == "native":
                from pytest_benchflow.tasks.native import prompt_problems, read_strategy

                prompts = read_prompts(parsed.body, f"{directory}/prompts")
                strategy = read_strategy(f"{directory}/{layout.tests}")
                if strategy is not None and strategy.judge is not None:
                    names = tuple(f"{layout.tests}/{name}" for name in strategy_rubrics(strategy.judge))
                    problems += missing_files(directory, [RequiredFile("rubric", names)])
                problems += prompt_problems(file, parsed.config, prompts)
            instructions = _instructions(directory, file, parsed.config, prompts, problems)
        except TaskError as error:
            problems += error.problems
    if strict:
        problems = as_errors(problems)
    if parsed.config is None or any(problem.severity == "error" for problem in problems):
        raise TaskError(dict.fromkeys(problems))
    task = _task(Path(directory), Path(file), parsed.config, layout, prompts, strategy, instructions, problems)
    if problems := [*_hidden_scripts(task), *service_problems(task, parsed.source)]:
        raise TaskError(problems)
    return task


def parse_file(file: str, source: TomlSource | None = None) -> Parsed:
    """Read and validate a task file without looking at its directory; a task.toml may have been read already."""
    if file.endswith(".md"):
        from pytest_benchflow.tasks.native import (
            parse_document,  # with YAML and more models, which most tasks never need
        )

        return parse_document(file)
    source = source or TomlSource(file, read_text(file))
    config, problems = validate_model(source, TaskConfig, unknown="warning", older=TaskKeys())
    return Parsed(source, config, problems)


def _locate(path: str) -> tuple[str, str]:
    path = os.path.abspath(path)
    if os.path.basename(path) in {"task.toml", "task.md"} and not os.path.isdir(path):
        return os.path.dirname(path), path
    file = task_file(path)
    if file is None:
        if os.path.isdir(path) and not os.access(path, os.X_OK):
            closed = Problem(path, None, None, "cannot be read (Permission denied)", "check its permissions")
            raise TaskError([closed])
        reason = "holds no task" if os.path.isdir(path) else "is missing"
        raise TaskError([Problem(path, None, None, reason, "a task has a task.toml, or a task.md with front matter")])
    return path, file


def _instructions(
    directory: str, file: str, config: TaskConfig, prompts: Prompts, problems: list[Problem]
) -> tuple[str, ...]:
    """Return the text of every step; report those that say nothing."""
    native = file.endswith(".md")
    if native and not config.steps:
        return (prompts.base,)
    texts = []
    for name in [f"steps/{step.name}/instruction.md" for step in config.steps] or ["instruction.md"]:
        path = f"{directory}/{name}"
        there = os.path.isfile(path) and os.path.getsize(path) > 0
        texts.append(without_canary(read_text(path)) if there else "")
        if there and not texts[-1].strip():
            problems.append(Problem(path, None, None, "says nothing", "write there what the agent has to do"))
    return tuple(texts)


def _unusable(directory: str, file: str) -> list[Problem]:
    """Report links that lead too far away, and what nobody may read here."""
    problems: list[Problem] = []
    refused = set()
    for relative in (os.path.basename(file), *parts(directory)):
        path = f"{directory}/{relative}"
        if relative.partition("/")[0] in refused:
            continue
        if os.path.islink(path):
            reach = _reach(directory, relative)
            if os.path.commonpath([reach, os.path.realpath(path)]) != reach:
                whose = "the task" if "/" in relative else "the folder of the task"
                fix = "copy the file into the task, a task has to be complete by itself"
                problems.append(Problem(path, None, None, f"is a link to {os.readlink(path)}, outside {whose}", fix))
                refused.add(relative)
        elif not os.access(path, os.R_OK):
            problems.append(Problem(path, None, None, "cannot be read (Permission denied)", "check its permissions"))
    if len(problems) <= _SHOWN_FILES:
        return problems
    *shown, last = in_order(problems)[:_SHOWN_FILES]
    more = f"{last.reason} (the same or the like of {len(problems) - _SHOWN_FILES} more files)"
    return [*shown, replace(last, reason=more)]


def _reach(directory: str, relative: str) -> str:
    """Return the directory that a link must not leave.

    The task file and each part may be a link to that of a task beside it; links inside of a part stay in their task.
    """
    part, _, inside = relative.partition("/")
    folder = os.path.dirname(os.path.realpath(directory))
    if not inside:
        return folder
    home = os.path.relpath(os.path.realpath(f"{directory}/{part}"), folder).partition("/")[0]
    return os.path.join(folder, home)


def _services_asked_for(source: Source, config: TaskConfig, directory: Path) -> list[Problem]:
    """Warn of services that the task's own benchmark would start, and nobody does here."""
    if not config.benchflow.environment:
        return []
    from pytest_benchflow.tasks.service_manifest import service_request

    at = ("benchflow", "environment")
    reason = f"{service_request(config.benchflow.environment, directory)}, which nobody starts here"
    fix = "the task is refused when it is run"
    return [Problem(source.file, source.line(at), source.key(at), reason, fix, "warning")]


def _unread_compose(directory: str) -> list[Problem]:
    """Warn of a compose file that nobody reads for its name, unless the image gets it as data."""
    environment, name = f"{directory}/environment", "docker-compose.yml"
    file = f"{environment}/{name}"
    if (
        not os.path.isfile(file)
        or os.path.isfile(f"{environment}/{COMPOSE_FILE}")
        or is_copied(Path(environment), name)
    ):
        return []
    fix = "rename it if the task needs its services"
    return [Problem(file, None, None, f"is not read, only {COMPOSE_FILE} is", fix, "warning")]


def _hidden_scripts(task: Task) -> list[Problem]:
    """Report scripts that are never copied, although nothing works without them."""
    needed = []
    for step in task.steps:
        tests = [path for path in step.tests_dirs if (path / step.test_script).is_file()]
        needed += [(step, path, step.test_script) for path in tests[-1:] if step.verifier.uploads_tests]
        if step.solution_dir is not None:
            needed.append((step, step.solution_dir, script(task.config, "solve")))
    fix = "take it out of that file, the task cannot run without it"
    return [
        Problem(str(folder / name), None, None, f"is left out by {IGNORE_FILE}", fix)
        for step, folder, name in needed
        if name in step.left_out.get(folder, ())
    ]


def _task(
    directory: Path,
    file: Path,
    config: TaskConfig,
    layout: Layout,
    prompts: Prompts,
    strategy: Strategy | None,
    instructions: tuple[str, ...],
    warnings: list[Problem],
) -> Task:
    environment, document = directory / "environment", config.as_document()
    return Task(
        path=directory,
        file=file,
        layout=layout.name,
        name=task_name(config, str(directory)),
        config=config,
        steps=build_steps(directory, config, layout, instructions, strategy),
        environment_dir=environment if environment.is_dir() else None,
        skills_dir=environment / "skills" if (environment / "skills").is_dir() else None,
        tests_target=layout.tests_target,
        solution_target=layout.solution_target,
        run=run_hints(config.benchflow),
        document=None if document is None else Document(document, prompts),
        warnings=in_order(warnings),
    )


def task_name(config: TaskConfig, directory: str) -> str:
    """Return the name a task gives itself, else that of its directory."""
    if config.task is not None:
        return config.task.name
    document = config.as_document()
    return (document and document.name) or os.path.basename(os.path.abspath(directory))


def full_summary(
    directory: str, file: str, source: TomlSource | None
) -> tuple[TaskSummary, tuple[RequiredFile, ...], tuple[RequiredFile, ...]] | None:
    """Return what `parse_summary` does, by the models; a task.toml has been read already."""
    native = file.endswith(".md")
    try:
        parsed = parse_file(file, source)
    except TaskError:
        if native and not has_siblings(directory, native=True):
            return None
        raise
    if not has_shape(parsed.source.data, native=native) and not has_siblings(directory, native=native):
        return None
    config, problems = parsed.config, list(parsed.problems)
    if config is None:
        raise TaskError(problems)
    if native:
        from pytest_benchflow.tasks.native import prompt_problems

        problems += prompt_problems(file, config, read_prompts(parsed.body, f"{directory}/prompts"))
    layout = layout_of(directory, file)
    files, solutions = required_files(config, layout), solution_files(config, layout)
    if any(problem.severity == "error" for problem in problems):
        raise TaskError([*problems, *missing_files(directory, files)])
    summary = TaskSummary(
        file=file,
        name=task_name(config, directory),
        layout=layout.name,
        os=config.environment.os,
        difficulty=word(config.metadata.get("difficulty")),
        category=word(config.metadata.get("category")),
        tags=tags_of(config.metadata, config.task.keywords if config.task else ()),
        run=run_hints(config.benchflow),
        n_steps=len(config.steps),
        has_solution=all(file.exists(directory) for file in solutions),
        warnings=in_order(problems),
    )
    return summary, files, solutions
