"""Fill `${VAR}` templates of a task's env tables from the environment of the runner."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError, Category

if TYPE_CHECKING:
    from collections.abc import Mapping


_WHOLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)
_INSIDE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class MissingVariables(BenchflowError):
    """A task wants variables that the runner does not have; `names` lists them."""

    category = Category.CREDENTIALS

    def __init__(self, names: tuple[str, ...], where: str) -> None:
        self.names = names
        self.where = where
        what = "variable" if len(names) == 1 else "variables"
        which = "it" if len(names) == 1 else "them"
        message = f"{where} needs the environment {what} {', '.join(names)}"
        super().__init__(message, advice=f"set {which}, or give a default: ${{{names[0]}:-value}}")

    def __reduce__(self) -> tuple[type[MissingVariables], tuple[tuple[str, ...], str]]:
        return MissingVariables, (self.names, self.where)


def resolve_env(env: Mapping[str, str], source: Mapping[str, str], where: str = "env") -> dict[str, str]:
    """Replace values that are `${NAME}` or `${NAME:-default}` as a whole; all else stays literal."""
    _demand(missing_variables(env, source), where)
    return {key: _value(value, source) for key, value in env.items()}


def missing_variables(env: Mapping[str, str], source: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that `resolve_env` would not find, each once, in order."""
    matches = (_WHOLE.fullmatch(value) for value in env.values())
    return tuple(dict.fromkeys(m[1] for m in matches if m and m[2] is None and m[1] not in source))


def filled_variables(env: Mapping[str, str], source: Mapping[str, str]) -> dict[str, str]:
    """Return what `resolve_env` takes from the runner, by its name here and by its name there."""
    matches = ((key, _WHOLE.fullmatch(value)) for key, value in env.items())
    return {name: source[m[1]] for key, m in matches if m and m[1] in source for name in (key, m[1])}


def resolve_headers(headers: Mapping[str, str], source: Mapping[str, str], where: str = "headers") -> dict[str, str]:
    """Replace references anywhere inside the values, as MCP headers allow."""
    references = (match for value in headers.values() for match in _INSIDE.finditer(value))
    _demand(tuple(dict.fromkeys(m[1] for m in references if m[2] is None and m[1] not in source)), where)
    return {key: _INSIDE.sub(lambda m: source.get(m[1], m[2] or ""), value) for key, value in headers.items()}


def _value(value: str, source: Mapping[str, str]) -> str:
    match = _WHOLE.fullmatch(value)
    return value if match is None else source.get(match[1], match[2] or "")


def _demand(missing: tuple[str, ...], where: str) -> None:
    if missing:
        raise MissingVariables(missing, where)
