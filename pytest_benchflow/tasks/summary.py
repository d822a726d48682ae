"""`TaskSummary`, the little that collection needs of a task: plain data, no pydantic, no YAML.

Most files of most benchmarks say only everyday things; their summary is found without the models.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import Problem, TomlSource, read_text
from pytest_benchflow.tasks.layout import is_package_name, tags_of, word
from pytest_benchflow.tasks.required_files import RequiredFile

if TYPE_CHECKING:
    from pytest_benchflow.configfile import Data


@dataclass(frozen=True, slots=True)
class RunHints:
    """What a task file asks of pytest; None means nothing was said."""

    threshold: float | None = None
    trials: int | None = None
    timeout_sec: float | None = None
    quarantine: bool = False
    skip: str | None = None
    xfail: str | None = None


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """A task as collection sees it."""

    file: str
    name: str
    layout: str
    os: str
    difficulty: str | None
    category: str | None
    tags: tuple[str, ...]
    run: RunHints
    n_steps: int
    has_solution: bool
    warnings: tuple[Problem, ...]

    def solved(self, has_solution: bool) -> TaskSummary:
        """Return the summary with another answer to whether the oracle can run."""
        return replace(self, has_solution=has_solution)

    def to_json(self) -> list[object]:
        """Return the summary as JSON data."""
        run = self.run
        return [
            self.file, self.name, self.layout, self.os, self.difficulty, self.category, self.tags,
            [run.threshold, run.trials, run.timeout_sec, run.quarantine, run.skip, run.xfail],
            self.n_steps, self.has_solution,
            [[p.file, p.line, p.key, p.reason, p.fix, p.severity] for p in self.warnings],
        ]  # fmt: skip

    @classmethod
    def from_json(cls, values: list[object]) -> TaskSummary:
        """Return the summary that `to_json` wrote; whatever does not fit raises an ordinary exception."""
        file, name, layout, os_, difficulty, category, tags, run, n_steps, has_solution, warnings = values
        return cls(
            file, name, layout, os_, difficulty, category,  # type: ignore[arg-type]
            tuple(tags), RunHints(*run), n_steps, has_solution,  # type: ignore[arg-type, misc]
            tuple(Problem(*problem) for problem in warnings),  # type: ignore[attr-defined]
        )  # fmt: skip


Rule = Callable[[object], bool]

_INSTRUCTION = RequiredFile("instruction", ("instruction.md",))
_TESTS = RequiredFile("tests", ("tests/test.sh",))
_REQUIRED = (RequiredFile("environment", ("environment",)), _INSTRUCTION, _TESTS)
_REQUIRED_WITH_IMAGE = (_INSTRUCTION, _TESTS)
_SOLUTIONS = (RequiredFile("solution", ("solution/solve.sh",)),)
_NO_HINTS = RunHints()


def plain_summary(
    directory: str, file: str, data: Data
) -> tuple[TaskSummary, tuple[RequiredFile, ...], tuple[RequiredFile, ...]] | None:
    """Return what the models would find in a task.toml; None if only they can tell."""
    if not data or not _follows(ROOT, data):
        return None
    task, metadata, environment = (_table(data, name) for name in ("task", "metadata", "environment"))
    if "task" in data and "name" not in task:
        return None
    keywords = task.get("keywords")
    summary = TaskSummary(
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
    return summary, _REQUIRED_WITH_IMAGE if environment.get("docker_image") else _REQUIRED, _SOLUTIONS


def _table(data: Data, name: str) -> Mapping[str, object]:
    table = data.get(name)
    return table if isinstance(table, dict) else {}


def _follows(rules: Mapping[str, Rule], table: object) -> bool:
    if not isinstance(table, dict):
        return False
    for key, value in table.items():
        rule = rules.get(key)
        if rule is None or not rule(value):
            return False
    return True


def _string(value: object) -> bool:
    return type(value) is str


def _filled(value: object) -> bool:
    return type(value) is str and value != ""


def _strings(value: object) -> bool:
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
    rules = {"name": _string, "email": _string}
    return type(value) is list and all(_follows(rules, item) and "name" in item for item in value)


#: Written here and not taken from the models: importing those would cost every collection more than all of its files.
#: A test tries each of these keys with odd values against the models.
TABLES: Mapping[str, Mapping[str, Rule]] = {
    "task": {
        "name": lambda value: type(value) is str and is_package_name(value),
        "version": _filled,
        "description": _string,
        "authors": _people,
        "keywords": _strings,
    },
    "agent": {"timeout_sec": _positive},
    "verifier": {"timeout_sec": _positive, "env": _env},
    "environment": {
        "build_timeout_sec": _positive,
        "docker_image": _filled,
        "cpus": _positive,
        "memory_mb": _whole,
        "storage_mb": _whole,
        "gpus": _count,
        "allow_internet": _flag,
        "env": _env,
    },
    "solution": {"timeout_sec": _positive, "env": _env},
}
ROOT: Mapping[str, Rule] = {
    "schema_version": _string,
    "version": _string,
    "metadata": lambda value: type(value) is dict,
    **{name: partial(_follows, rules) for name, rules in TABLES.items()},
}


def parse_summary(
    directory: str, file: str
) -> tuple[TaskSummary, tuple[RequiredFile, ...], tuple[RequiredFile, ...]] | None:
    """Return the summary, the required files and those of the oracle; None if the file is some other tool's."""
    source = None if file.endswith(".md") else TomlSource(file, read_text(file))
    if source is not None and (plain := plain_summary(directory, file, source.data)) is not None:
        return plain
    from pytest_benchflow.tasks.load import full_summary

    return full_summary(directory, file, source)
