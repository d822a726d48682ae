"""The head of any task file, found with the models."""

from __future__ import annotations

from .heads import TaskHead
from .layout import layout_of
from .load import parse_file, task_name
from .model import run_hints
from .names import tags_of, word
from .needs import Need, unmet
from .problems import TaskError, in_order
from .prompts import read_prompts
from .shape import has_shape, has_siblings
from .structure import needs_of, solutions_of
from .toml_source import TomlSource


def full_head(
    directory: str, file: str, source: TomlSource | None
) -> tuple[TaskHead, tuple[Need, ...], tuple[Need, ...]] | None:
    """Return head, needs and oracle needs; None if the file is some other tool's. A task.toml has been read already."""
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
        from .native import prompt_problems

        problems += prompt_problems(file, config, read_prompts(parsed.body, f"{directory}/prompts"))
    layout = layout_of(directory, file)
    needs, solutions = needs_of(config, layout), solutions_of(config, layout)
    if any(problem.severity == "error" for problem in problems):
        raise TaskError([*problems, *unmet(directory, needs)])
    head = TaskHead(
        file=file,
        name=task_name(config, directory),
        layout=layout.name,
        os=config.environment.os,
        difficulty=word(config.metadata.get("difficulty")),
        category=word(config.metadata.get("category")),
        tags=tags_of(config.metadata, config.task.keywords if config.task else ()),
        run=run_hints(config.benchflow),
        n_steps=len(config.steps),
        has_solution=all(need.met(directory) for need in solutions),
        warnings=in_order(problems),
    )
    return head, needs, solutions
