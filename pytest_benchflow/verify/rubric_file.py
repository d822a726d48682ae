"""Read rubrics for judges, strictly: TOML or JSON, in BenchFlow's dialect, rewardkit's, or as criteria with choices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from pytest_benchflow.configfile import (
    JsonSource,
    Problem,
    Source,
    TaskError,
    TomlSource,
    quoted,
    read_text,
    validate_model,
)
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.verify.rubric_models import (
    Aggregation,
    BenchflowRubric,
    ChoicesRubric,
    Dialect,
    JudgeRubric,
    RewardkitRubric,
)

_MODELS: Mapping[Dialect, type[BenchflowRubric] | type[RewardkitRubric] | type[ChoicesRubric]] = {
    "benchflow": BenchflowRubric,
    "rewardkit": RewardkitRubric,
    "choices": ChoicesRubric,
}
_DASHED = {"atif-trajectory": "atif_trajectory"}
#: Keys that only one dialect has. What both score differently makes it worth telling them apart.
_OF_REWARDKIT = {
    "judge": {"judge", "isolated", "cwd", "version", "mcp_servers", "reasoning_effort", "weight", "prompt_template"}
    | {"atif-trajectory", "atif_trajectory"},
    "criterion": {"annotations", "optional"},
}
_OF_BENCHFLOW = {"criterion": {"match_criteria", "title", "space", "required"}, "scoring": {"method"}, "": {"title"}}
_OF_CHOICES = {"criterion": {"text", "choices"}}


def load_rubric(path: Path | str) -> JudgeRubric:
    """Return the rubric in a file, or raise TaskError with everything that is wrong with it."""
    return load_rubric_json(path) if str(path).endswith(".json") else load_rubric_toml(path)


def load_rubric_toml(path: Path | str) -> JudgeRubric:
    """Return the rubric in a TOML file, whatever its name."""
    return _read(TomlSource(str(path), read_text(str(path))))


def load_rubric_json(path: Path | str) -> JudgeRubric:
    """Return the rubric in a JSON file, whatever its name."""
    return _read(JsonSource(str(path), read_text(str(path))))


def rubric_of(criteria: Sequence[Mapping[str, object] | str]) -> JudgeRubric:
    """Return a rubric of criteria given in Python: their tables, or just their descriptions."""
    tables = [{"description": each} if isinstance(each, str) else dict(each) for each in criteria]
    return _read(JsonSource("criteria", json.dumps({"criteria": tables}, default=str)))


def _read(source: Source) -> JudgeRubric:
    dialect = _dialect(source)
    data = dict(source.data)
    if isinstance(judge := data.get("judge"), dict):
        data["judge"] = {_DASHED.get(key, key): value for key, value in judge.items()}
    rubric, problems = validate_model(source, _MODELS[dialect], data)
    if rubric is None or problems:
        raise TaskError(problems)
    return rubric.to_rubric(source.file)


def _dialect(source: Source) -> Dialect:
    """Return the dialect a file says or shows; keys of two dialects in one file are refused."""
    said = source.data.get("dialect")
    if said is not None:
        if said not in _MODELS:
            fix = did_you_mean(str(said), _MODELS)
            raise TaskError([Problem(source.file, source.line(("dialect",)), "dialect", f"is {quoted(said)}", fix)])
        return next(each for each in _MODELS if each == said)
    choices = next(_markers(source.data, _OF_CHOICES), None)
    if choices is not None:
        return "choices"
    rewardkit = next(_markers(source.data, _OF_REWARDKIT), None) or _hyphen(source.data)
    benchflow = next(_markers(source.data, _OF_BENCHFLOW), None)
    if rewardkit is not None and benchflow is not None:
        reason = f"is rewardkit's, and {source.key(benchflow)} is BenchFlow's"
        fix = 'remove one of them, or write dialect = "rewardkit" or "benchflow" at the top'
        raise TaskError([Problem(source.file, source.line(rewardkit), source.key(rewardkit), reason, fix)])
    return "benchflow" if rewardkit is None else "rewardkit"


_Path = tuple[str | int, ...]


def _markers(data: Mapping[str, object], keys: Mapping[str, set[str]]) -> Iterator[_Path]:
    """Yield where in a file the keys of one dialect stand."""
    yield from ((key,) for key in data if key in keys.get("", ()))
    for table in ("judge", "scoring"):
        content = data.get(table)
        if isinstance(content, Mapping):
            yield from ((table, key) for key in content if key in keys.get(table, ()))
    for name in ("criterion", "criteria"):
        content = data.get(name)
        for n, item in enumerate(content) if isinstance(content, list) else ():
            if isinstance(item, Mapping):
                yield from ((name, n, key) for key in item if key in keys.get("criterion", ()))


def _hyphen(data: Mapping[str, object]) -> _Path | None:
    """Return where the file joins words as only rewardkit does."""
    scoring = data.get("scoring")
    aggregation = scoring.get("aggregation") if isinstance(scoring, Mapping) else None
    return ("scoring", "aggregation") if isinstance(aggregation, str) and "-" in aggregation else None


def rubric_schema() -> dict[str, object]:
    """Return the JSON Schema of rubric files in all dialects, for editors."""
    schemas = [model.model_json_schema() for model in _MODELS.values()]
    definitions: dict[str, object] = {}
    for schema in schemas:
        definitions |= schema.pop("$defs", {})
    for table in (*schemas, *definitions.values()):
        if isinstance(table, dict) and table.get("type") == "object":
            table["additionalProperties"] = False
            _add_spellings(table["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rubric of a judge",
        "anyOf": schemas,
        "$defs": definitions,
    }


def _add_spellings(properties: dict[str, object]) -> None:
    """Add what the loader takes too: keys with a hyphen, and aggregations in every spelling."""
    properties |= {dashed: properties[key] for dashed, key in _DASHED.items() if key in properties}
    words = get_args(Aggregation)
    spellings = [*words, *(word.replace("_", "-") for word in words if "_" in word), "mean"]
    properties |= {key: {"enum": spellings} for key in ("aggregation", "method") if key in properties}
