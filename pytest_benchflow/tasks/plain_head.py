"""The head of a task file that says only everyday things, found without the models: most files of most benchmarks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .heads import RunHints, TaskHead
from .names import is_package_name, tags_of, word
from .needs import Need

if TYPE_CHECKING:
    from .sources import Data

Rule = Callable[[object], bool]

_INSTRUCTION = Need("instruction", ("instruction.md",))
_TESTS = Need("tests", ("tests/test.sh",))
_NEEDS = (Need("environment", ("environment",)), _INSTRUCTION, _TESTS)
_NEEDS_WITH_IMAGE = (_INSTRUCTION, _TESTS)
_SOLUTIONS = (Need("solution", ("solution/solve.sh",)),)
_NO_HINTS = RunHints()


def plain_head(directory: str, file: str, data: Data) -> tuple[TaskHead, tuple[Need, ...], tuple[Need, ...]] | None:
    """Return what the models would find in a task.toml; None if only they can tell."""
    if not data or not _follows(data, _ROOT):
        return None
    task, metadata, environment = (_table(data, name) for name in ("task", "metadata", "environment"))
    if ("task" in data and "name" not in task) or ("version" in data and "schema_version" in data):
        return None
    keywords = task.get("keywords")
    head = TaskHead(
        file=file,
        name=str(task["name"]) if task else os.path.basename(os.path.abspath(directory)),
        layout="harbor",
        os="linux",
        difficulty=word(metadata.get("difficulty")),
        category=word(metadata.get("category")),
        tags=tags_of(metadata, keywords if isinstance(keywords, list) else ()),
        run=_NO_HINTS,
        n_steps=0,
        has_solution=True,  # the index looks after every parse
        warnings=(),
    )
    return head, _NEEDS_WITH_IMAGE if environment.get("docker_image") else _NEEDS, _SOLUTIONS


def _table(data: Data, name: str) -> Mapping[str, object]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _follows(table: object, rules: Mapping[str, Rule]) -> bool:
    if not isinstance(table, dict):
        return False
    for key, value in table.items():
        rule = rules.get(key)
        if rule is None or not rule(value):
            return False
    return True


def _text(value: object) -> bool:
    return type(value) is str


def _filled(value: object) -> bool:
    return type(value) is str and value != ""


def _texts(value: object) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


def _env(value: object) -> bool:
    return type(value) is dict and all(
        type(text) is str and name and "=" not in name and "\0" not in name + text for name, text in value.items()
    )


def _positive(value: object) -> bool:
    return type(value) in (int, float) and 0 < value < 1e12  # type: ignore[operator]


def _whole(value: object) -> bool:
    return type(value) is int and 0 < value < 1e12


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1e12


def _flag(value: object) -> bool:
    return type(value) is bool


def _people(value: object) -> bool:
    rules = {"name": _text, "email": _text}
    return type(value) is list and all(_follows(item, rules) and "name" in item for item in value)


def _tables(**rules: Rule) -> Rule:
    return lambda value: _follows(value, rules)


_ROOT: Mapping[str, Rule] = {
    "schema_version": _text,
    "version": _text,
    "metadata": lambda value: type(value) is dict,
    "task": _tables(
        name=lambda value: type(value) is str and is_package_name(value),
        version=_filled,
        description=_text,
        authors=_people,
        keywords=_texts,
    ),
    "agent": _tables(timeout_sec=_positive),
    "verifier": _tables(timeout_sec=_positive, env=_env),
    "environment": _tables(
        build_timeout_sec=_positive,
        docker_image=_filled,
        cpus=_positive,
        memory_mb=_whole,
        storage_mb=_whole,
        gpus=_count,
        allow_internet=_flag,
        env=_env,
    ),
    "solution": _tables(timeout_sec=_positive, env=_env),
}
