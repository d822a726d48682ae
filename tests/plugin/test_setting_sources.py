"""Every setting from every source, and which of two sources counts."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pytest_benchflow
from pytest_benchflow.core.settings import LAYERS, Layer, Setting, Source, Structure, Variables, merge, settings_of
from pytest_benchflow.plugin.settings import read_settings
from pytest_benchflow.rollout import load_rollout_file
from pytest_benchflow.rollout.settings import RolloutSettings, RunSettings

SETTINGS: list[Setting] = [*settings_of(RunSettings).values(), *settings_of(RolloutSettings).values()]
OPTIONS = [declared for declared in SETTINGS if declared.option is not None]
SOURCES = [
    (source, declared)
    for source in ("command line", "ini", "table")
    for declared in OPTIONS
    if source == "command line" or declared.ini
]
KEYS = [declared for declared in SETTINGS if declared.file is not None and not isinstance(declared.kind, Structure)]

#: Two texts that each kind of setting takes; as YAML and as TOML they mean the same.
SAMPLES = {
    "Text": ("one", "two"),
    "Texts": ("one", "two"),
    "Lines": ("one", "two"),
    "Probability": ("0.9", "0.8"),
    "Prompts": ("one", "two"),
    "Sources": ("org/one", "org/two"),
    "Number": ("3", "4.5"),
    "Limit": ("3", "4.5"),
    "Count": ("3", "4"),
    "CountOrAuto": ("3", "4"),
    "CountOrOff": ("3", "4"),
    "Flag": ("true", "true"),
    "PathTo": ("one", "two"),
    "Variables": ("A=1", "A=2"),
    "UserName": ("someone", "other"),
    "JobName": ("one", "two"),
    "EarlierJob": ("one", "two"),
    "Shard": ("1/2", "2/2"),
    "price": ("m=1/2", "m=2/3"),
    "missing_credentials": ("skip", "error"),
    "progress": ("lines", "off"),
    "keep_sandbox": ("failed", "always"),
    "integrity": ("fail", "report"),
    "order": ("given", "longest"),
    "skill_mode": ("with-skill", "no-skill"),
    "loop_strategy": ("single-shot", "verify-retry:k=2"),
}


def samples(declared: Setting) -> tuple[str, str]:
    return SAMPLES.get(declared.name) or SAMPLES[type(declared.kind).__name__]


def expected(declared: Setting, text: str, base: Path) -> Any:
    return declared.kind.read(True if text == "true" else text, Source("test", base))


def name_of(declared: Setting) -> str:
    return declared.name


@pytest.fixture
def place(pytester: pytest.Pytester) -> Path:
    """A directory that holds what settings may have to find."""
    for name in ("one", "two"):
        pytester.mkdir(name)
    return pytester.path


@pytest.mark.parametrize(("source", "declared"), SOURCES, ids=lambda value: getattr(value, "name", value))
def test_an_option_is_read_from_each_of_its_sources(
    place: Path, pytester: pytest.Pytester, declared: Setting, source: str
) -> None:
    text = samples(declared)[0]
    if declared.name == "config":
        shutil.rmtree(place / "one")
        (place / "one").write_text("agent: oracle\n")
    args = []
    if source == "command line":
        args = [str(declared.option) if declared.kind.takes == "none" else f"{declared.option}={text}"]
    elif source == "ini":
        pytester.makeini(f"[pytest]\n{declared.ini_key} = {text}\n")
    else:
        value = text if declared.kind.ini in ("float", "int", "bool") else json.dumps(text)
        pytester.makepyprojecttoml(f"[tool.pytest.ini_options]\n[tool.benchflow]\n{declared.table_key} = {value}\n")
    layers = read_settings(pytester.parseconfig(*args)).layers
    assert [layer.name for layer in layers if layer.values] == [source]
    assert merge([declared], *layers) == {declared.name: expected(declared, text, place)}


@pytest.mark.parametrize("declared", KEYS, ids=name_of)
def test_a_setting_is_read_from_a_rollout_file_under_each_of_its_words(place: Path, declared: Setting) -> None:
    text = samples(declared)[0]
    for key in (str(declared.file), *declared.older):
        value = "{A: '1'}" if isinstance(declared.kind, Variables) else text
        (place / "file.yaml").write_text(f"agent: oracle\n{key}: {value}\n")
        values = load_rollout_file(place / "file.yaml").layer("job file").values
        assert values[declared.name] == expected(declared, text, place)


@pytest.mark.parametrize("declared", SETTINGS, ids=name_of)
def test_of_two_sources_the_stronger_counts(declared: Setting) -> None:
    order = [*LAYERS]
    if declared.task_beats_ini is not None:
        order = [name for name in LAYERS if name != "task"]
        order.insert(order.index("ini"), "task")
    for strong, weak in itertools.combinations(order, 2):
        one, two = ({"A": "1"}, {"A": "2"}) if isinstance(declared.kind, Variables) else ("strong", "weak")
        layers = (Layer(weak, {declared.name: two}), Layer(strong, {declared.name: one}))  # type: ignore[arg-type]
        assert merge([declared], *layers) == {declared.name: one}, (strong, weak)


def test_only_a_stated_reason_changes_the_order() -> None:
    assert {declared.name for declared in SETTINGS if declared.task_beats_ini} == {"threshold", "trials"}


def test_variables_of_all_sources_add_up() -> None:
    layers = (Layer("task", {"agent_env": {"A": "1", "B": "1"}}), Layer("marker", {"agent_env": {"B": "2"}}))
    assert merge(settings_of(RolloutSettings).values(), *layers) == {"agent_env": {"A": "1", "B": "2"}}


def test_what_no_source_says_keeps_its_default() -> None:
    assert merge(SETTINGS, *(Layer(name) for name in LAYERS)) == {}  # type: ignore[arg-type]


THROW_AWAY = (
    '    colour: str | None = setting(None, Text(), "colour of the sandbox", option="--bf-colour", metavar="C")\n'
)
PROBE = """
import json, pathlib
from pytest_benchflow import RolloutConfig, rollout_config_from_yaml
from pytest_benchflow.plugin.options import markdown_table
from pytest_benchflow.rollout import rollout_schema

print(json.dumps({
    "python": RolloutConfig(task_path="t", colour="red").colour,
    "config.json": RolloutConfig(task_path="t", colour="red").public()["colour"],
    "file": rollout_config_from_yaml("file.yaml").colour,
    "schema": "colour" in rollout_schema()["properties"],
    "page": "`--bf-colour C` | – | colour of the sandbox" in markdown_table(),
}))
"""


def test_a_new_setting_is_one_entry_of_the_declaration(tmp_path: Path, pytester: pytest.Pytester) -> None:
    package = tmp_path / "pytest_benchflow"
    shutil.copytree(Path(pytest_benchflow.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    declaration = package / "rollout/settings.py"
    head, tail = declaration.read_text().split("    sandbox: str = setting(", 1)
    declaration.write_text(f"{head}{THROW_AWAY}    sandbox: str = setting({tail}")
    (pytester.path / "file.yaml").write_text("agent: oracle\ncolour: red\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(*args: str) -> str:
        command = [sys.executable, *args]
        return subprocess.run(command, env=env, cwd=pytester.path, check=True, capture_output=True, text=True).stdout

    found = json.loads(run("-c", PROBE))
    assert found == {"python": "red", "config.json": "red", "file": "red", "schema": True, "page": True}

    task = Path(__file__).parents[2] / "tasks/hello-world"
    for name, args in {
        "line": ["--bf-colour=red"],
        "ini": ["-o", "bf_colour=red"],
        "job": ["--bf-config=job.yaml"],
    }.items():
        (pytester.path / "job.yaml").write_text(f"agent: oracle\ncolour: red\ntasks: {task}\n")
        run("-m", "pytest", str(task), "--bf-sandbox=local", "--rootdir=.", f"--bf-job-name={name}", *args)
        (written,) = pytester.path.glob(f"jobs/{name}/*/config.json")
        assert json.loads(written.read_text())["colour"] == "red"
