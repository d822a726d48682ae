"""Turn the data of a file into its model, and everything wrong with them, unknown keys included, into problems."""

from __future__ import annotations

import re
import types
from functools import cache
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from pytest_benchflow.configfile.problems import Problem, Severity
from pytest_benchflow.configfile.values import Table, quoted
from pytest_benchflow.core.text import closest, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pydantic_core import ErrorDetails

    from pytest_benchflow.configfile.sources import Data, Path, Source

    Report = Callable[[Path, str, str | None], None]


Model = type[BaseModel]


class _Inner(NamedTuple):
    """The model below a key: the value itself, each item of a list, or each value of a mapping."""

    model: Model
    mapped: bool = False


def unknown_keys(data: object, model: Model, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every key that the model does not know."""
    if not isinstance(data, dict):
        return
    known = _fields(model)
    for key, value in data.items():
        if key not in known:
            yield (*at, str(key))
        elif (inner := known[key]) is not None:
            yield from _below(value, inner, (*at, key))


def _below(value: object, inner: _Inner, at: Path) -> Iterator[Path]:
    if isinstance(value, list):
        for n, item in enumerate(value):
            yield from unknown_keys(item, inner.model, (*at, n))
    elif inner.mapped and isinstance(value, dict):
        for name, item in value.items():
            yield from unknown_keys(item, inner.model, (*at, str(name)))
    else:
        yield from unknown_keys(value, inner.model, at)


def advise(path: Path, root: Model, source: Source) -> str:
    """Say what the unknown key at `path` was probably meant to be, or where it belongs."""
    key = str(path[-1])
    places = [source.table(name) for name, keys in _tables(root) if key in keys]
    if key in _fields(root) and len(path) > 1:
        return "it belongs at the top level"
    if places:
        return f"it belongs under {' or '.join(places)}"
    known = list(_fields(_model_at(path[:-1], root)))
    return did_you_mean(key, known) if len(known) <= 12 or closest(key, known) else "remove it"


@cache
def _fields(model: Model) -> dict[str, _Inner | None]:
    return {name: _inner(field.annotation) for name, field in model.model_fields.items()}


def _inner(annotation: object) -> _Inner | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _Inner(annotation)
    origin = get_origin(annotation)
    if origin is dict:
        inner = _inner(get_args(annotation)[1])
        return inner and _Inner(inner.model, mapped=True)
    if origin in (Annotated, Union, types.UnionType, tuple):
        return next((inner for arg in get_args(annotation) if (inner := _inner(arg))), None)
    return None


def _model_at(path: Path, root: Model) -> Model:
    model, skip = root, False
    for part in path:
        if skip or isinstance(part, int):
            skip = False
        elif inner := _fields(model).get(part):
            model, skip = inner.model, inner.mapped
    return model


@cache
def _tables(root: Model) -> tuple[tuple[str, frozenset[str]], ...]:
    """List the tables people confuse, each with its keys."""
    names = ("agent", "verifier", "environment", "solution", "task")
    return tuple((name, frozenset(_fields(inner.model))) for name in names if (inner := _fields(root).get(name)))


ModelT = TypeVar("ModelT", bound=Table)


class KeyUpgrade(Protocol):
    """Older spellings of a file format, brought to today's and back."""

    def upgrade(self, data: Data, report: Report) -> Data:
        """Return the data with today's spellings; the data themselves stay as they are."""

    def as_written(self, data: object, path: Path) -> Path:
        """Return a path of the model in the spelling that the file uses."""

    def hint(self, path: Path, source: Source) -> str | None:
        """Return where an unknown key belongs, if that is known better than by its name."""


def validate_model(
    source: Source,
    model: type[ModelT],
    data: Data | None = None,
    *,
    unknown: Severity = "error",
    older: KeyUpgrade | None = None,
) -> tuple[ModelT | None, list[Problem]]:
    """Return the model, None if the data do not fit it, and all problems."""
    problems: list[Problem] = []

    def report(path: Path, reason: str, fix: str | None, severity: Severity = "error") -> None:
        written = path if older is None else older.as_written(source.data, path)
        problems.append(Problem(source.file, source.line(written), source.key(written), reason, fix, severity))

    content = dict(source.data if data is None else data)
    if older is not None:
        content = older.upgrade(content, report)
    for path in unknown_keys(content, model):
        known = older.hint(path, source) if older is not None else None
        report(path, "is not a known key", known or advise(path, model, source), unknown)
    return fit(model, content, report), problems


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
