"""Read JSON as the other readers read their files: plain data that still know on which line each key stands."""

from __future__ import annotations

import json
from functools import cached_property
from typing import cast

from pytest_benchflow.configfile.problems import Problem, TaskError
from pytest_benchflow.configfile.sources import Data, Path, Source, names


class JsonSource:
    """A parsed file of one JSON object; a key that stands there twice, NaN and infinity are errors."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self._text = text
        self.data = _parse(file, text)

    def line(self, path: Path) -> int | None:
        """Return the line of the key at `path`, else of the nearest object around it."""
        source = self._lines
        return None if source is None else source.line(path)

    def key(self, path: Path) -> str | None:
        """Write `path` with dots: `judge.model`."""
        return ".".join(names(path)) or None

    def table(self, name: str) -> str:
        """Write the name of an object."""
        return name

    @cached_property
    def _lines(self) -> Source | None:
        # JSON is YAML, whose reader knows lines; needed only where something is wrong.
        from pytest_benchflow.configfile.yaml_source import YamlSource

        try:
            return YamlSource(self.file, self._text.replace("\t", " "))
        except TaskError:
            return None


def _parse(file: str, text: str) -> Data:
    try:
        data: object = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise TaskError([Problem(file, error.lineno, None, f"is not valid JSON: {error.msg}")]) from None
    except RecursionError:
        raise TaskError([Problem(file, None, None, "is nested too deeply")]) from None
    except ValueError as error:
        raise TaskError([Problem(file, None, None, f"is not valid JSON: {error}")]) from None
    if not isinstance(data, dict):
        raise TaskError([Problem(file, 1, None, "is not an object", 'write {"key": value}')])
    return cast("Data", data)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    data: dict[str, object] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f'the key "{key}" stands there twice')
        data[key] = value
    return data


def _no_number(word: str) -> object:
    raise ValueError(f"{word} is not a number")
