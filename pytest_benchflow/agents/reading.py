"""Make frozen dataclasses from tables of TOML: every key known, every value of its type, all problems at once."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pytest_benchflow.hints import did_you_mean

T = TypeVar("T")
_BAD = object()
_KINDS = {str: "a text", bool: "true or false", float: "a number"}


def build(cls: type[T], table: Mapping[str, object], problems: list[str], where: str = "") -> T | None:
    """Return an object of a dataclass, or None and add to `problems` what is wrong with the table."""
    assert dataclasses.is_dataclass(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    hints = get_type_hints(cls)
    before = len(problems)
    for key in table:
        if key not in fields:
            problems.append(f"{_place(where, key)} is not known; {did_you_mean(key, fields)}")
    for name, field in fields.items():
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in table and not has_default:
            problems.append(f"{_place(where, name)} is missing")
    given = {name: _value(hints[name], value, problems, where, name) for name, value in table.items() if name in fields}
    return cls(**given) if len(problems) == before else None


def _value(kind: Any, value: object, problems: list[str], where: str, key: str) -> object:
    found = _convert(kind, value, problems, f"{where}.{key}" if where else key)
    if found is _BAD:
        problems.append(f"{_place(where, key)} is {_shown(value)}; give {_wanted(kind)}")
    return found


def _convert(kind: Any, value: object, problems: list[str], path: str) -> object:
    """Return the value as its type wants it, `_BAD` if it is of another; problems inside are added, not returned."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        tried = (_convert(arg, value, problems, path) for arg in args if arg is not types.NoneType)
        return next((found for found in tried if found is not _BAD), _BAD)
    if origin is Literal:
        return value if value in args else _BAD
    if origin is tuple:
        return _items(args[0], value, problems, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _table(args[0], args[1], value, problems, path)
    if dataclasses.is_dataclass(kind):
        return build(kind, value, problems, path) if isinstance(value, dict) else _BAD  # type: ignore[arg-type]
    if kind is float:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else _BAD
    return value if kind is object or type(value) is kind else _BAD


def _items(kind: Any, value: object, problems: list[str], path: str) -> object:
    if not isinstance(value, list):
        return _BAD
    items = [_convert(kind, item, problems, path) for item in value]
    return _BAD if _BAD in items else tuple(items)


def _table(keys: Any, kind: Any, value: object, problems: list[str], path: str) -> object:
    if not isinstance(value, dict):
        return _BAD
    known = get_args(keys)
    for key in value:
        if known and key not in known:
            problems.append(f"{_place(path, key)} is not known; {did_you_mean(key, known)}")
    return {key: _value(kind, item, problems, path, key) for key, item in value.items()}


def _place(where: str, key: str) -> str:
    return f"[{where}] {key}" if where else key


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _wanted(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(_wanted(arg) for arg in args if arg is not types.NoneType)
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin is tuple:
        return "a list of tables" if dataclasses.is_dataclass(args[0]) else "a list of texts"
    return _KINDS.get(kind, "a table")
