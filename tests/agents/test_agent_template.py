"""Templates: what values do in them, and that no value gets out of its place."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from functools import cache

import pytest
import yaml
from hypothesis import example, given, settings, strategies as st

from pytest_benchflow.agents import AgentManifest, AgentRequest
from pytest_benchflow.agents.access import resolve_access
from pytest_benchflow.agents.registry import BUILT_IN, built_in_manifest
from pytest_benchflow.agents.template import fill, fill_argv, fill_env, fill_tree, names_in, render
from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.providers.variables import Sources

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text.strip() == text)
READ = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("x", "x"),
        ("{model}!", "m!"),
        ("{api_key}", None),
        ("{model:+yes}", "yes"),
        ("{api_key:+yes}", None),
        ("{api_key:-none}", "none"),
        ("{model:-none}", "m"),
        ("{env:BF_API_KEY} ${BF_API_KEY} {Model} {}", "{env:BF_API_KEY} ${BF_API_KEY} {Model} {}"),
    ],
)
def test_a_placeholder_is_its_value(template: str, filled: str | None) -> None:
    assert fill(template, {"model": "m", "api_key": None}) == filled


def test_what_lacks_a_value_is_left_out() -> None:
    values = {"a": "1", "b": None}
    assert fill_env({"X": "{a}", "Y": "{b}"}, values) == {"X": "1"}
    assert fill_argv(("p", "--x={a}", "--y={b}"), values) == ["p", "--x=1"]
    tree = {"x": "{a}", "y": "{b}", "t": {"u": "{b}"}, "{b}": 1, "l": ["{a}", "{b}"], "n": 2, "e": {}}
    assert fill_tree(tree, values) == {"x": "1", "l": ["1"], "n": 2, "e": {}}
    assert fill_tree({"t": {"u": ["{b}"]}}, values) is None


def test_a_value_is_not_a_template() -> None:
    assert fill("{a}", {"a": "{b}", "b": "secret"}) == "{b}"


def test_every_placeholder_is_found() -> None:
    assert {*names_in({"{a}": ["{b:+x}", {"k": "{c:-y}"}], "x": 1})} == {"a", "b", "c"}


@pytest.mark.parametrize("form", ["json", "toml", "yaml"])
@given(key=TEXTS, value=TEXTS)
@example(key='"', value='"\n[evil]\nx = "')
@example(key="]", value="'''\"\"\"\\")
@example(key="\x7f\x85", value="\u2028\ufeff\x9f😀\x01")
def test_no_value_breaks_out_of_a_file(form: str, key: str, value: str) -> None:
    tree = {"plain": "x", key + "!": {"list": [{"inner": value}, value], "flag": True, "number": 3}}
    assert READ[form](render(tree, form).decode()) == tree  # type: ignore[arg-type]


def test_half_a_character_is_refused() -> None:
    with pytest.raises(UsageError, match="not valid text"):
        render({"x": "\udc80"}, "json")


@pytest.mark.parametrize(
    "name", [name for name in BUILT_IN if any(file.format != "text" for file in built_in_manifest(name).files)]
)
@settings(max_examples=25)
@given(model=TEXTS, key=TEXTS, url=TEXTS)
@example(model='m"}\n', key="'\"\\", url="http://x/\ny = 1")
def test_no_value_breaks_out_of_the_file_of_a_built_in_agent(name: str, model: str, key: str, url: str) -> None:
    assert files_of(name, model, key, url) == plain_files(name)


@cache
def agent(name: str) -> AgentManifest:
    return replace(built_in_manifest(name), provider="openai")


@cache
def plain_files(name: str) -> dict[str, object]:
    return files_of(name, "model", "key", "url")


def files_of(name: str, model: str, key: str, url: str) -> dict[str, object]:
    """Return the structure of an agent's files with these values."""
    given = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": url}
    access = resolve_access(agent(name), AgentRequest(f"openai/{model}"), Sources(environ=given))
    forms = {file.path: file.format for file in agent(name).files}
    return {file.path: _shape(READ[forms[file.path]](file.content.decode())) for file in access.files}


def _shape(tree: object) -> object:
    """Return the structure of a tree without its texts; keys may be values."""
    if isinstance(tree, dict):
        return sorted((repr(_shape(value)) for value in tree.values()), key=str)
    if isinstance(tree, list):
        return [_shape(item) for item in tree]
    return type(tree).__name__
