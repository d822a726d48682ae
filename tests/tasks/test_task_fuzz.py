"""Properties: no input gets anything but a TaskError out of the loaders, and lines point at their keys."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from pathlib import Path

import pytest
import tomli
from hypothesis import HealthCheck, given, settings, strategies as st

from pytest_benchflow.configfile import TaskError
from pytest_benchflow.configfile.sources import TomlSource, key_lines
from pytest_benchflow.tasks import TaskConfig, TaskIndex, load_task
from pytest_benchflow.tasks.document import DocumentConfig
from pytest_benchflow.tasks.load import full_summary
from pytest_benchflow.tasks.summary import ROOT, TABLES, plain_summary

EXAMPLES = int(os.environ.get("BF_FUZZ_EXAMPLES", "150"))
fuzz = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])

WORDS = """
agent environment verifier steps name timeout_sec env user allowed_hosts memory version storage image sandbox oracle
roles turns role source destination headers url collect command min_reward healthcheck mcp_servers tpu judge hardening
allow_internet << é a.b
"""
KEYS = sorted({*WORDS.split(), *TaskConfig.model_fields, *DocumentConfig.model_fields})
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["allowlist", "2G", "${A}", "x.org", "a/b", "stdio", "public", "separate", "llm-judge"])
)  # fmt: skip
keys = st.sampled_from(KEYS) | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5), max_leaves=25
)
tables = st.dictionaries(keys, values, max_size=8)


@pytest.fixture(scope="module")
def root():
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        for part in ("environment", "tests", "verifier"):
            (path / part).mkdir()
        (path / "instruction.md").write_text("x")
        (path / "tests/test.sh").write_text("x")
        (path / "verifier/test.sh").write_text("x")
        yield path


def attempt(root: Path, file: str, content: bytes) -> None:
    """Load by both ways; a TaskError is fine and must be able to say itself."""
    (root / "task.md").unlink(missing_ok=True)
    (root / "task.toml").unlink(missing_ok=True)
    (root / file).write_bytes(content)
    caught: list[TaskError] = []
    for look in (load_task, lambda path: TaskIndex().summary(str(path))):
        try:
            look(root)
        except TaskError as error:
            caught.append(error)
    assert all(error.problems and all(map(str, error.problems)) for error in caught)


@fuzz
@given(content=st.binary(max_size=200))
def test_any_bytes_as_task_toml(root, content):
    attempt(root, "task.toml", content)


@fuzz
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="ignore")))
def test_any_bytes_as_front_matter(root, content):
    attempt(root, "task.md", b"---\n" + content + b"\n---\nDo it\n")


@fuzz
@given(content=st.text(alphabet="ab:-{}[]&*!|>?%@\"'#\n ,0.~<=\t", max_size=80))
def test_yaml_syntax_soup(root, content):
    attempt(root, "task.md", b"---\n" + content.encode() + b"\n---\nDo it\n")


@fuzz
@given(content=st.text(alphabet="ab=.[]{}\"'\n ,#01-:T\\u", max_size=80))
def test_toml_syntax_soup(root, content):
    attempt(root, "task.toml", content.encode())


@fuzz
@given(data=tables)
def test_any_structure_as_front_matter(root, data):
    attempt(root, "task.md", b"---\n" + json.dumps(data).encode() + b"\n---\nDo it\n")


def to_toml(data: dict[str, object]) -> str:
    """Write a structure as TOML with inline values; None has no form there and is left out."""

    def value(item: object) -> str:
        if isinstance(item, bool):
            return str(item).lower()
        if isinstance(item, str):
            return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
        if isinstance(item, float):
            text = repr(item)
            return text if any(c in text for c in ".einf") else text + ".0"
        if isinstance(item, dict):
            return "{" + ", ".join(f"{json.dumps(k)} = {value(v)}" for k, v in item.items() if v is not None) + "}"
        if isinstance(item, list):
            return "[" + ", ".join(value(v) for v in item if v is not None) + "]"
        return str(item)

    return "".join(f"{json.dumps(key)} = {value(item)}\n" for key, item in data.items() if item is not None)


@fuzz
@given(data=tables)
def test_any_structure_as_task_toml(root, data):
    attempt(root, "task.toml", to_toml(data).encode(errors="ignore"))


names = st.sampled_from(["a", "b", "long-name", "x_1", '"quoted key"', "'lit.eral'", '"esc\\"aped"', '"u\\u00e9"', "3"])
fillers = st.sampled_from(
    [
        "",
        "# [not] = a table\n",
        "\n\n",
        'm{n} = """\n[fake]\nkey = 1\n"""\n',
        "l{n} = '''\n[[fake]]\n'''\n",
        "r{n} = [\n  1, # ]\n  [2],\n]\n",
        'i{n} = {{ p = {{ q = [1] }}, s = "}}" }}\n',
        's{n} = "a # b = ["\n',
        "d{n}.e.f = 1\n",
    ]
)


@st.composite
def documents(draw):
    """Draw a TOML text and the line of every key written on a line of its own."""
    text, lines, n = "", {}, 0
    arrays: dict[str, int] = {}

    def assign(prefix):
        nonlocal text
        for name in draw(st.lists(names, unique=True, max_size=4)):
            lines[(*prefix, tomli.loads(f"{name} = 1").popitem()[0])] = text.count("\n") + 1
            text += f"{name} = 1\n"

    def fill():
        nonlocal text, n
        for filler in draw(st.lists(fillers, max_size=3)):
            n += 1
            text += filler.format(n=n)

    assign(())
    fill()
    for kind in draw(st.lists(st.sampled_from(["table", "array", "sub"]), max_size=6)):
        n += 1
        if kind == "table":
            prefix = (f"t{n}", "in ner")
            text += f'[ t{n} . "in ner" ] # note\n'
        elif kind == "array" or "arr" not in arrays:
            arrays["arr"] = arrays.get("arr", -1) + 1
            prefix = ("arr", arrays["arr"])
            text += "[[arr]]\n"
        else:
            prefix = ("arr", arrays["arr"], f"sub{n}")
            text += f"[arr.sub{n}]\n"
        lines[prefix] = text.count("\n")
        assign(prefix)
        fill()
    return text, lines


@fuzz
@given(document=documents())
def test_the_locator_finds_the_line_of_every_key(document):
    text, lines = document
    tomli.loads(text)
    found = key_lines(text)
    assert {path: found.get(path) for path in lines} == lines
    source = TomlSource("f", text)
    assert all(source.line((*path, "missing")) == line for path, line in lines.items())


@fuzz
@given(text=st.text(alphabet="ab=.[]{}\"'\n ,#01\\", max_size=60))
def test_the_locator_takes_any_valid_toml(text):
    try:
        data = tomli.loads(text)
    except ValueError:
        return
    found = key_lines(text)
    assert all((key,) in found for key in data)


configs = st.fixed_dictionaries(
    {},
    optional={
        "agent": st.fixed_dictionaries(
            {}, optional={"timeout_sec": st.floats(0.1, 1e6), "user": st.integers(0, 9) | st.just("root")}
        ),
        "environment": st.fixed_dictionaries(
            {},
            optional={
                "cpus": st.integers(1, 64) | st.floats(0.1, 64),
                "memory_mb": st.integers(1, 10**6),
                "network_mode": st.sampled_from(["public", "no-network"]),
                "env": st.dictionaries(
                    st.text("AB_", min_size=1, max_size=3), st.text("aé$ {}", max_size=5), max_size=3
                ),
                "workdir": st.just("/app"),
                "healthcheck": st.just({"command": "true", "retries": 2}),
            },
        ),
        "verifier": st.fixed_dictionaries(
            {}, optional={"timeout_sec": st.floats(1, 1e4), "pytest_plugins": st.just(["a"])}
        ),
        "metadata": st.dictionaries(st.text("abc", min_size=1), st.integers() | st.lists(st.booleans()), max_size=3),
        "artifacts": st.lists(st.sampled_from(["/a", "/b/c"]), max_size=2),
    },
)


@fuzz
@given(data=configs)
def test_a_valid_config_survives_the_round_trip(root, data):
    (root / "task.md").unlink(missing_ok=True)
    (root / "task.toml").write_text(to_toml(data), encoding="utf-8")
    config = load_task(root, strict=True).config
    dumped = config.model_dump(exclude_unset=True, mode="json")
    assert TaskConfig.model_validate(dumped) == config
    for table in ("agent", "environment", "verifier", "metadata"):
        for key, value in data.get(table, {}).items():
            assert dumped[table][key] == value


@fuzz
@given(data=configs)
def test_toml_and_front_matter_mean_the_same(root, data):
    (root / "task.md").unlink(missing_ok=True)
    (root / "task.toml").write_text(to_toml(data), encoding="utf-8")
    split = load_task(root).config
    front = {("sandbox" if key == "environment" else key): value for key, value in data.items()}
    (root / "task.md").write_text(f"---\n{json.dumps(front)}\n---\nDo it\n", encoding="utf-8")
    native = load_task(root).config
    assert {name: getattr(native, name) for name in TaskConfig.model_fields} == {
        name: getattr(split, name) for name in TaskConfig.model_fields
    }


ODD = [
    0,
    -1,
    1,
    0.5,
    1e300,
    float("inf"),
    float("nan"),
    True,
    "",
    "x",
    "60",
    "1.4",
    "a/b",
    "a/..",
    "a/b\n",
    "allowlist",
]
ODD += [
    [],
    ["x"],
    [1],
    [{"name": "x"}],
    [{"name": "x", "email": "y"}],
    [{"email": "y"}],
    [{"name": 1}],
    {},
    {"A": "b"},
    {"A": 1},
]
ODD += [{"": "b"}, {"A=B": "c"}, {"A": "\0"}]
#: Keys that only the models know, beside those of the short way.
OTHER_KEYS = {
    "metadata": ["difficulty", "category", "tags", "x"],
    "agent": ["user", "timeout"],
    "verifier": ["type"],
    "environment": ["os", "memory", "image", "network_mode"],
}
KEYS_OF = {table: [*TABLES.get(table, ()), *OTHER_KEYS.get(table, ())] for table in {**TABLES, **OTHER_KEYS}}
AROUND = {"agent": {"timeout_sec": 5}, "task": {"name": "a/b"}}


@pytest.mark.parametrize("around", [{}, AROUND], ids=["alone", "in a task"])
@pytest.mark.parametrize("table", ["", *KEYS_OF])
def test_the_short_way_to_a_summary_finds_what_the_models_find(root, table, around):
    keys = KEYS_OF.get(table, [*ROOT])
    for key, value in itertools.product(keys, ODD):
        within = {**around.get(table, {}), key: value}
        compare(root, {**around, **({table: within} if table else within)})


def test_the_short_way_leaves_contradictions_to_the_models(root):
    compare(root, {"version": "1.0", "schema_version": "1.4"})
    compare(root, {"task": {"keywords": ["x"]}})


def compare(root: Path, data: dict[str, object]) -> None:
    """Ask both for the summary; only the short way may decline."""
    file = f"{root}/task.toml"
    source = TomlSource(file, to_toml(data))
    short = plain_summary(str(root), file, source.data)
    if short is not None:
        summary, files, solutions = short
        assert (summary.solved(False), files, solutions) == full_summary(str(root), file, source), data


def test_an_everyday_task_file_needs_no_model(root):
    text = """
        version = "1.0"
        [task]
        name = "acme/hello"
        keywords = ["io"]
        [metadata]
        difficulty = "easy"
        [agent]
        timeout_sec = 60
        [verifier]
        timeout_sec = 60.5
        [environment]
        cpus = 1
        memory_mb = 512
    """
    found = plain_summary(str(root), f"{root}/task.toml", TomlSource("task.toml", text).data)
    assert found is not None
    assert (found[0].name, found[0].tags, found[0].difficulty) == ("acme/hello", ("io",), "easy")
