"""Rubrics for judges, as files: two dialects, JSON, and everything that can be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import tomli

from pytest_benchflow import JudgeConfig, RubricConfig, ScoringConfig, load_rubric_json, load_rubric_toml
from pytest_benchflow.configfile import TaskError
from pytest_benchflow.verify import Criterion, JudgeRubric, load_rubric, rubric_of, rubric_schema

BENCHFLOW = """\
[judge]
model = "claude-sonnet-4-6"
files = ["*.md"]
timeout = 90

[[criterion]]
name = "correct"
description = "The numbers are right."
weight = 2

[[criterion]]
title = "Tone"
type = "likert"

[[criterion]]
description = "How complete is it?"
type = "numeric"
space = "reasoning"

[scoring]
method = "threshold"
"""
REWARDKIT = """\
[judge]
judge = "anthropic/claude-opus-5-5"
files = ["/app/report.md"]
samples = 3
atif-trajectory = "/logs/trajectory.json"

[[criterion]]
description = "How complete is it?"
type = "numeric"

[[criterion]]
description = "Which quality?"
type = "rubric"
levels = ["bad", "fair", "good"]
optional = true

[[criterion]]
name = "invents"
description = "It invents facts."
annotations = {type = "negative"}

[scoring]
aggregation = "required-pass"
"""


def load(tmp_path: Path, text: str, name: str = "rubric.toml") -> JudgeRubric:
    (tmp_path / name).write_text(text)
    return load_rubric(tmp_path / name)


def refusal(tmp_path: Path, text: str, name: str = "rubric.toml") -> str:
    with pytest.raises(TaskError) as caught:
        load(tmp_path, text, name)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_benchflows_dialect(tmp_path: Path) -> None:
    rubric = load(tmp_path, BENCHFLOW)
    assert (rubric.dialect, rubric.model, rubric.mode) == ("benchflow", "claude-sonnet-4-6", "individual")
    assert (rubric.timeout_sec, rubric.files, rubric.threshold) == (90, ("*.md",), 0.7)
    assert [(each.name, each.kind, each.weight) for each in rubric.criteria] == [
        ("correct", "binary", 2.0),
        ("Tone", "likert", 1.0),
        ("how_complete_is_it", "numeric", 1.0),
    ]
    assert (rubric.criteria[2].low, rubric.criteria[2].high, rubric.criteria[2].space) == (0.0, 100.0, "reasoning")
    assert rubric.aggregation == "threshold"
    assert rubric.mapped == ("title = name", "method = aggregation")


def test_rewardkits_dialect_scores_the_same_words_otherwise(tmp_path: Path) -> None:
    rubric = load(tmp_path, REWARDKIT)
    assert (rubric.dialect, rubric.model, rubric.mode) == ("rewardkit", "anthropic/claude-opus-5-5", "batched")
    assert (rubric.timeout_sec, rubric.samples, rubric.trajectory) == (300, 3, True)
    numeric, levels, negative = rubric.criteria
    assert (numeric.low, numeric.high) == (0.0, 1.0)
    assert (levels.levels, levels.is_required) == (("bad", "fair", "good"), False)
    assert negative.is_negated
    assert rubric.aggregation == "required_pass"
    assert "judge = model" in rubric.mapped
    assert "numbers end at 1 without max" in rubric.mapped
    half = {"how_complete_is_it": 0.5, "which_quality": 0.0, "invents": 1.0}
    assert rubric.score(half) == 0.0
    assert rubric.score({**half, "how_complete_is_it": 1.0}) == 1.0


def test_a_file_that_may_be_meant_for_the_other_dialect_is_told_what_differs(tmp_path: Path) -> None:
    text = '[judge]\nsamples = 3\n[[criterion]]\ndescription = "x"\ntype = "numeric"\n'
    text += '[scoring]\naggregation = "threshold"\n'
    path = tmp_path / "rubric.toml"
    path.write_text(text)
    assert load_rubric(path).mapped == ("numbers end at 100 without max", "the threshold is 0.7")
    for plain in ('dialect = "benchflow"\n' + text, text.replace("samples = 3\n", "")):
        path.write_text(plain)
        assert load_rubric(path).mapped == ()


def test_a_file_may_say_its_dialect(tmp_path: Path) -> None:
    text = '[[criterion]]\ndescription = "x"\ntype = "numeric"\n'
    assert load(tmp_path, text).criteria[0].high == 100.0
    assert load(tmp_path, 'dialect = "rewardkit"\n' + text).criteria[0].high == 1.0


def test_benchflows_json(tmp_path: Path) -> None:
    data = {"title": "T", "criteria": [{"id": "c-1", "title": "Sum", "match_criteria": "The sum is right."}]}
    rubric = load(tmp_path, json.dumps(data), "rubric.json")
    assert (rubric.title, rubric.dialect) == ("T", "benchflow")
    assert [(each.name, each.description) for each in rubric.criteria] == [("c-1", "Sum: The sum is right.")]


def test_criteria_with_choices(tmp_path: Path) -> None:
    data = {"criteria": [{"name": "a", "text": "Is it?", "choices": ["no", "partly", "yes"]}, {"text": "And this?"}]}
    rubric = load(tmp_path, json.dumps(data), "rubric.json")
    assert rubric.dialect == "choices"
    assert [(each.name, each.levels) for each in rubric.criteria] == [
        ("a", ("no", "partly", "yes")),
        ("and_this", ("no", "yes")),
    ]


def test_criteria_in_python() -> None:
    rubric = rubric_of(["It is right.", "It is right.", {"description": "How good?", "type": "likert"}])
    assert [each.name for each in rubric.criteria] == ["it_is_right", "it_is_right_2", "how_good"]


@pytest.mark.parametrize(
    ("criterion", "raw", "value"),
    [
        (Criterion("x", "x"), 1, 1.0),
        (Criterion("x", "x"), 0, 0.0),
        (Criterion("x", "x", is_negated=True), 1, 0.0),
        (Criterion("x", "x", "likert", points=5), 4, 0.75),
        (Criterion("x", "x", "numeric", low=10, high=20), 12.5, 0.25),
        (Criterion("x", "x", "levels", levels=("a", "b", "c")), 1, 0.5),
    ],
)
def test_verdicts_become_scores(criterion: Criterion, raw: float, value: float) -> None:
    assert criterion.value(raw) == pytest.approx(value)


@pytest.mark.parametrize(
    ("aggregation", "reward"),
    [
        ("weighted_mean", 0.7),
        ("weighted_sum", 2.1),
        ("all_pass", 0.0),
        ("any_pass", 1.0),
        ("threshold", 1.0),
        ("required_pass", 1.0),
    ],
)
def test_scores_become_a_reward(aggregation: str, reward: float) -> None:
    criteria = (Criterion("a", "a", weight=2), Criterion("b", "b", is_required=False))
    rubric = JudgeRubric(criteria, aggregation=aggregation)  # type: ignore[arg-type]
    assert rubric.score({"a": 1.0, "b": 0.1}) == pytest.approx(reward)


def test_every_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    text = """\
[judge]
fils = ["a"]
[[criterion]]
descripton = "x"
type = "lickert"
[[criterion]]
description = "y"
weight = -1
points = 1
[scoring]
aggregation = "weigthed_mean"
"""
    assert refusal(tmp_path, text).splitlines() == [
        "rubric.toml:2: [judge] fils is not a known key; did you mean files?",
        "rubric.toml:4: [[criterion]] descripton is not a known key; did you mean description?",
        'rubric.toml:5: [[criterion]] type is "lickert"; did you mean likert?',
        "rubric.toml:8: [[criterion]] weight is -1; give a number of at least 0",
        "rubric.toml:9: [[criterion]] points is 1; give a number of at least 2",
        'rubric.toml:11: [scoring] aggregation is "weigthed_mean"; did you mean weighted_mean?',
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "criterion is missing; a rubric has at least one"),
        ('[[criterion]]\nname = "x"\ndescription = "x"\nweight = 0', "has no positive weight"),
        ("[[criterion]]\nweight = 1", "1: [[criterion]] description is missing; say what the judge"),
        ('[[criterion]]\nid="a"\ntitle="x"\n[[criterion]]\nid="a"\ntitle="x"', 'two criteria named "a"'),
        ('[[criterion]]\ndescription="x"\ntype="numeric"\nmin=5\nmax=5', "max is 5, not above min = 5"),
        ('[[criterion]]\ndescription="x"\ntype="numeric"\nmax=nan', "max is nan"),
        ('[[criterion]]\ndescription="x"\ntype="rubric"', "levels is missing; list the levels"),
        ('[[criterion]]\ndescription="x"\nlevels=["a","a"]', "names a level twice"),
        ('[judge]\njudge="m"\n[[criterion]]\ntitle="x"', "2: [judge] judge is rewardkit's, and [[criterion]] title is"),
        ('[judge]\njudge="claude-code"\n[[criterion]]\ndescription="x"', "agents do not judge here; name a model"),
        ('[judge]\njudge="m"\nisolated=true\n[[criterion]]\ndescription="x"', "isolated is for agents as judges"),
        ('[judge]\nsamples=0\n[[criterion]]\ndescription="x"', "samples is 0; give a number of at least 1"),
        ('[judge]\ntimeout=true\n[[criterion]]\ndescription="x"', "timeout is true; give a number"),
        ('[[criterion]]\ndescription="x"\nweight="2"', 'weight is "2"; give a number'),
        ('[scoring]\nthreshold=2\n[[criterion]]\ndescription="x"', "threshold is 2; give a number of at most 1"),
        ('dialect="rewardkitt"', 'dialect is "rewardkitt"; did you mean rewardkit?'),
        (
            '[scoring]\nmethod="mean"\naggregation="all_pass"\n[[criterion]]\ntitle="x"',
            "method contradicts aggregation",
        ),
        ('[scoring]\naggregation="required-pass"\n[[criterion]]\ndescription="x"\noptional=true', "is not optional"),
        ('[judge]\njudge="m"\n[[criterion]]\ndescription="x"\nweight=-1', 'needs aggregation = "weighted-sum"'),
        ("[[criterion]", "rubric.toml:1: is not valid TOML"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{\n "criteria": [\n  {"id": "a", "titel": "x"}\n ]\n}', "rubric.json:3: criteria.titel is not a known key"),
        ('{"criteria": [1]}', "criteria has 1; give a table"),
        ('{"a": 1, "a": 2}', 'the key "a" stands there twice'),
        ('{"criteria": [{"title": "x", "weight": NaN}]}', "NaN is not a number"),
        ("[1]", "is not an object"),
        ('{"criteria": ', "rubric.json:1: is not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_is_as_strict(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text, "rubric.json")


def test_a_rubric_is_looked_at_as_benchflows_documentation_does(tmp_path: Path) -> None:
    criteria = [{"id": "a", "match_criteria": "x"}, {"title": "b", "description": "y", "type": "numeric", "weight": 2}]
    path = tmp_path / "rubric.json"
    path.write_text(json.dumps({"title": "t", "criteria": criteria, "judge": {"files": ["x.md"]}}))
    rubric = load_rubric(path)
    assert isinstance(rubric, RubricConfig)
    assert load_rubric_json(path) == rubric
    assert [(c.id, c.type, c.weight, c.min, c.max) for c in rubric.criteria] == [
        ("a", "binary", 1.0, 0.0, 100.0),
        ("b", "numeric", 2.0, 0.0, 100.0),
    ]
    assert rubric.judge == JudgeConfig("claude-sonnet-4-6", "individual", ("x.md",), 120.0)
    assert rubric.scoring == ScoringConfig("weighted_mean", 0.7)
    toml = tmp_path / "rubric.txt"
    toml.write_text('[[criterion]]\ndescription = "x"\n')
    assert load_rubric_toml(toml) == load_rubric(toml)


def test_the_published_schema_is_the_models_own() -> None:
    published = Path(__file__).parent.parent.parent / "docs/schemas/rubric.schema.json"
    assert json.loads(published.read_text()) == json.loads(json.dumps(rubric_schema()))


@pytest.mark.parametrize("text", [BENCHFLOW, REWARDKIT])
def test_the_schema_takes_what_the_loader_takes(text: str) -> None:
    jsonschema.validate(tomli.loads(text), rubric_schema())


@pytest.mark.parametrize("text", ['[[criterion]]\ndescripton = "x"', "[judge]\nsamples = 0"])
def test_the_schema_refuses_what_the_loader_refuses(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomli.loads(text), rubric_schema())
