"""What the command line, the ini file and `[tool.benchflow]` say, checked: one layer of settings each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.settings import Layer, Setting, Source, are_texts, settings_of
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.plugin.options import OPTIONS, has_table, ini_value, pyproject
from pytest_benchflow.rollout.settings import RolloutSettings, RunSettings

_OVERRIDES, _AGENTS = "overrides", "agents"


@dataclass(frozen=True, slots=True)
class Override:
    """Settings for the tasks whose path or name match a pattern."""

    pattern: str
    values: Mapping[str, Any]

    def matches(self, path: str, name: str) -> bool:
        """Return whether a task, by its path below the root or its name, is meant."""
        return fnmatch(path, self.pattern) or fnmatch(name, self.pattern)


@dataclass(frozen=True, slots=True)
class Settings:
    """What was set for the whole run, and for single tasks."""

    layers: tuple[Layer, ...]
    agents: Mapping[str, tuple[str | None, ...]]
    """The models of each agent in `[[tool.benchflow.agents]]`."""
    overrides: tuple[Override, ...]

    def override_for(self, path: str, name: str) -> Layer:
        """Return what the overrides say of a task; of several that match, the first to speak of a key counts."""
        values: dict[str, Any] = {}
        for row in reversed(self.overrides):
            if row.matches(path, name):
                values |= row.values
        return Layer("overrides", values)


def read_settings(config: pytest.Config) -> Settings:
    """Return the settings; anything wrong with them is one UsageError that names the option."""
    table = _read_table(config)
    started, root = config.invocation_params.dir, config.rootpath
    command_line = {
        declared.name: declared.kind.read(value, Source(str(declared.option), started))
        for declared in OPTIONS
        if (value := config.getoption(declared.ini_key)) is not None
    }
    ini = {
        declared.name: declared.kind.read(value, Source(declared.ini_key, _base(declared, started, root)))
        for declared in OPTIONS
        if (value := ini_value(config, declared)) is not None
    }
    values = {
        declared.name: declared.kind.read(
            table[declared.table_key], Source(f"[tool.benchflow] {declared.table_key}", _base(declared, started, root))
        )
        for declared in OPTIONS
        if declared.ini and declared.table_key in table
    }
    layers = (Layer("command line", command_line), Layer("ini", ini), Layer("table", values))
    return Settings(layers, dict(_nested_agents(table)), tuple(_overrides(table)))


def _base(declared: Setting, started: Path, root: Path) -> Path:
    """Return what a path in a file of settings is relative to; a report goes to where pytest was started."""
    return started if declared.name in ("json", "html") else root


def _nested_agents(table: Mapping[str, object]) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    for row in _rows(table, _AGENTS, {"name", "models"}):
        name, models = row.get("name"), row.get("models", [])
        if not isinstance(name, str) or not are_texts(models):
            raise UsageError("[[tool.benchflow.agents]] needs name = TEXT and models = [TEXT, …]")
        yield name, tuple(models)


def _overrides(table: Mapping[str, object]) -> Iterator[Override]:
    """Yield what `[[tool.benchflow.overrides]]` says; it can set whatever a rollout file can."""
    where = "[[tool.benchflow.overrides]]"
    known = {
        declared.file: declared
        for declared in (*settings_of(RolloutSettings).values(), settings_of(RunSettings)["trials"])
        if declared.file is not None and (declared.option is not None)
    }
    for row in _rows(table, _OVERRIDES, {"tasks", *known}):
        patterns = row.get("tasks")
        if isinstance(patterns, str):
            patterns = [patterns]
        if not isinstance(patterns, list) or not patterns:
            raise UsageError(f"{where} needs tasks = PATTERN")
        values = {
            known[key].name: known[key].kind.read(value, Source(f"{where} {key}"))
            for key, value in row.items()
            if key != "tasks"
        }
        yield from (Override(str(pattern), values) for pattern in patterns)


def _rows(table: Mapping[str, object], key: str, known: set[str]) -> list[dict[str, object]]:
    rows = table.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"[tool.benchflow] {key} is not an array of tables", advice=f"write [[tool.benchflow.{key}]]")
    for row in rows:
        for name in row:
            if name not in known:
                raise UsageError(f"[[tool.benchflow.{key}]] {name} is not known", advice=did_you_mean(name, known))
    return rows


def _read_table(config: pytest.Config) -> dict[str, object]:
    if not has_table(config):
        return {}
    import tomli

    path = pyproject(config)
    try:
        table: object = tomli.loads(path.read_text("utf-8")).get("tool", {}).get("benchflow", {})
    except (ValueError, AttributeError) as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.benchflow is not a table", advice="write [tool.benchflow]")
    known = {declared.table_key for declared in OPTIONS if declared.ini} | {_AGENTS, _OVERRIDES}
    for key in table:
        if key not in known:
            raise UsageError(f"[tool.benchflow] {key} is not known", advice=did_you_mean(key, known))
    return table


def require_writable(path: Path, source: str) -> None:
    """Refuse a report file that could not be written at the end."""
    folder = next(parent for parent in path.parents if parent.exists())
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"{source}: {path} cannot be written", advice="name a file in a directory of yours")
