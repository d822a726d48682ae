"""Turn the data of a task file into its model, and everything wrong with them into problems."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from pytest_benchflow.hints import did_you_mean

from .problems import Problem, Severity
from .spelling import as_written, modernise
from .unknown_keys import advise, unknown_keys
from .values import Table, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic_core import ErrorDetails

    from .sources import Path, Source

    Report = Callable[[Path, str, str | None], None]

ModelT = TypeVar("ModelT", bound=Table)


def validate(
    source: Source, model: type[ModelT], data: Mapping[str, object] | None = None
) -> tuple[ModelT | None, list[Problem]]:
    """Return the model, None if the data do not fit it, and all problems; unknown keys are warnings."""
    problems: list[Problem] = []

    def report(path: Path, reason: str, fix: str | None, severity: Severity = "error") -> None:
        written = as_written(source.data, path)
        problems.append(Problem(source.file, source.line(written), source.key(written), reason, fix, severity))

    modern = modernise(dict(source.data if data is None else data), report)
    for path in unknown_keys(modern, model):
        report(path, "is not a known key", advise(path, model, source), "warning")
    return fit(model, modern, report), problems


def check_settings(source: Source, model: type[ModelT]) -> tuple[ModelT | None, list[Problem]]:
    """Return the model of a file that is no task, None if the data do not fit it, and all problems; all are errors."""
    problems: list[Problem] = []

    def report(path: Path, reason: str, fix: str | None, severity: Severity = "error") -> None:
        problems.append(Problem(source.file, source.line(path), source.key(path), reason, fix, severity))

    for path in unknown_keys(source.data, model):
        report(path, "is not a known key", advise(path, model, source))
    return fit(model, source.data, report), problems


def fit(model: type[ModelT], data: Mapping[str, object], report: Report) -> ModelT | None:
    """Return the model of the data; None if they do not fit it, with everything that is wrong reported."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        seen: set[Path] = set()
        for detail in error.errors(include_url=False):
            path = _path(data, detail)
            if path not in seen:
                seen.add(path)
                report(path, *explain(path, detail))
        return None


def _path(data: object, detail: ErrorDetails) -> Path:
    """Return where in the data an error is: pydantic adds the names of union members, the data do not."""
    path: list[str | int] = []
    for part in detail["loc"]:
        if isinstance(data, dict) and (part in data or detail["type"] == "missing"):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            break
        path.append(part)
    key = detail.get("ctx", {}).get("key") if detail["type"] == "rule" else None
    return (*path, key) if key else tuple(path)


def explain(path: Path, detail: ErrorDetails) -> tuple[str, str | None]:
    """Say what is wrong with a value and what to write instead."""
    kind, context = detail["type"], detail.get("ctx", {})
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    verb = "has" if path and isinstance(path[-1], int) else "is"
    if kind == "rule":
        reason = str(context["reason"])
        return f"{verb} {reason[3:]}" if reason.startswith("is ") else reason, str(context["fix"])
    if kind == "missing":
        return "is missing", "add it"
    reason = f"{verb} {quoted(detail['input'])}"
    if kind in {"literal_error", "enum"}:
        return reason, did_you_mean(str(detail["input"]), re.findall(r"'([^']*)'", str(context["expected"])))
    return reason, _wanted(kind, key, detail["input"], context)


def _wanted(kind: str, key: str, value: object, context: Mapping[str, object]) -> str:
    if kind in {"string_too_short", "too_short"}:
        return "give a value or remove the key"
    if kind == "string_type":
        scalar = isinstance(value, bool | int | float)
        return f'quote it: "{quoted(value)}"' if scalar else "give a string"
    if kind.startswith("bool"):
        return "give true or false"
    if kind in {"tuple_type", "list_type"}:
        return "give an array"
    if kind in {"model_type", "dict_type", "model_attributes_type"}:
        return "give a table"
    return _number(kind, key, context)


def _number(kind: str, key: str, context: Mapping[str, object]) -> str:
    bound = ""
    if kind == "greater_than":
        bound = f" above {context['gt']:g}"
    elif kind == "greater_than_equal":
        bound = f" of at least {context['ge']:g}"
    elif kind == "less_than_equal":
        bound = f" of at most {context['le']:g}"
    if key.endswith(("_sec", "timeout")):
        return f"give seconds as a number{bound}, for example 600"
    if key.endswith("_mb"):
        return f"give megabytes as a whole number{bound}, for example 2048"
    return f"give a {'whole ' if kind.startswith('int') else ''}number{bound}"
