"""Find keys that no model knows, and say which one was probably meant or where it belongs."""

from __future__ import annotations

import types
from functools import cache
from typing import TYPE_CHECKING, Annotated, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from pytest_benchflow.hints import closest, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .sources import Path, Source

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
        found = _inner(get_args(annotation)[1])
        return found and _Inner(found.model, mapped=True)
    if origin in (Annotated, Union, types.UnionType, tuple):
        return next((found for arg in get_args(annotation) if (found := _inner(arg))), None)
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
