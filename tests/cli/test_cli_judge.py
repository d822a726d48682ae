"""`bf judge check`: a judge against labelled cases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from asking import WIRES
from model_server import Fail, ModelServer, Verbatim
from model_server.conversation import Conversation

from pytest_benchflow.cli.main import main
from pytest_benchflow.verify.calibration import kappa

RUBRIC = """\
[judge]
model = "anthropic/claude-scripted-1"
mode = "batched"

[[criterion]]
name = "done"
description = "It says done."

[[criterion]]
name = "tone"
description = "It is friendly."
type = "likert"
"""
CASES = [
    {"id": "a", "submission": "done, dear", "expected": {"done": "yes", "tone": 5}},
    {"id": "b", "submission": "done", "expected": {"done": True, "tone": 1}},
    {"id": "c", "files": {"x/answer.md": "nothing"}, "expected": {"done": "no"}},
    {"id": "d", "final_message": "done? no", "expected": {"done": "no", "tone": 3}},
]


def grade(conversation: Conversation) -> Verbatim:
    """Answer by words, and be taken in by a question."""
    inside = conversation.prompts[0].partition("begin of the submission")[2].partition("end of the submission")[0]
    verdicts = {"done": "yes" if "done" in inside else "no", "tone": 5 if "dear" in inside else 1}
    return Verbatim(json.dumps({name: {"reason": "I looked.", "verdict": word} for name, word in verdicts.items()}))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.chdir(tmp_path)
    Path("rubric.toml").write_text(RUBRIC)
    write_cases(*CASES)
    with ModelServer() as started:
        for name, value in WIRES["anthropic"].variables(started).items():
            monkeypatch.setenv(name, value)
        yield started


def write_cases(*cases: object) -> None:
    Path("cases.jsonl").write_text("\n".join(json.dumps(case) for case in cases) + "\n")


def check(*words: str) -> int:
    return main(["judge", "check", "rubric.toml", "--cases", "cases.jsonl", *words])


def test_agreement_with_labels_is_told_by_criterion(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.script("", grade)
    assert check("--json") == 0
    data = json.loads(capsys.readouterr().out)
    done, tone = data["criteria"]
    assert (done["cases"], done["agreement"], done["kappa"], done["flips"]) == (4, 0.75, 0.5, None)
    assert (tone["cases"], tone["agreement"]) == (3, pytest.approx(2 / 3))
    assert data["agreement"] == pytest.approx(5 / 7)
    assert (data["judge"]["calls"], data["judge"]["model"]) == (4, "anthropic/claude-scripted-1")
    assert [case["id"] for case in data["cases"]] == ["a", "b", "c", "d"]

    assert check("--min-agreement", "0.9") == 1
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert (
        lines[0]
        == 'rubric.toml: dialect benchflow (mode = "batched" asks all criteria in one call, which BenchFlow does not)'
    )
    assert lines[2].split() == ["done", "4", "0.75", "0.50", "0.25", "–"]
    assert "d: done is labelled 0 and judged 1: I looked." in lines
    assert shown.err == "bf: agreement is 0.71, below --min-agreement 0.9\n"


def test_repeats_show_verdicts_that_flip(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    turns = count()

    def fickle(conversation: Conversation) -> Verbatim:
        verdict = "no" if "done, dear" in conversation.prompts[0] and next(turns) % 2 else "yes"
        answer = {"done": {"reason": "x", "verdict": verdict}, "tone": {"reason": "x", "verdict": 3}}
        return Verbatim(json.dumps(answer))

    server.script("", fickle)
    assert check("--repeats", "4", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert [each["flips"] for each in data["criteria"]] == [0.25, 0.0]
    assert len(data["cases"][0]["rounds"]) == 4


def test_a_case_without_a_verdict_is_told_and_fails(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.script("nothing", Fail(401, message="no such key"))
    server.script("", grade)
    assert check() == 1
    out = capsys.readouterr().out
    assert "c: no verdict: the judge: anthropic/claude-scripted-1: HTTP 401" in out
    assert "done           3" in out


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        ([], "cases.jsonl: has no case; write one per line"),
        ([1], "cases.jsonl:1: is not an object"),
        ([CASES[0], {"submision": "x"}], "cases.jsonl:2: submision is not a known key; did you mean submission?"),
        ([{"submission": "x"}], "cases.jsonl:1: expected is missing; give a verdict by criterion"),
        (
            [{"submission": "x", "expected": {"dne": "yes"}}],
            "expected.dne is not a criterion of the rubric; did you mean done?",
        ),
        ([{"submission": "x", "expected": {"tone": 6}}], "the verdict of tone is 6, outside 1 to 5"),
        ([{"expected": {"tone": 1}}], "has no submission; give submission, files, path or final_message"),
        ([{"files": {"../x": "y"}, "expected": {"tone": 1}}], 'files has the name "../x"'),
        ([{"path": "nowhere", "expected": {"tone": 1}}], 'path is "nowhere", which is not a directory'),
    ],
)
def test_cases_that_are_wrong_are_told_with_their_lines(
    server: ModelServer, capsys: pytest.CaptureFixture[str], cases: list[object], words: str
) -> None:
    write_cases(*cases)
    assert check() == 2
    assert words in capsys.readouterr().err
    assert not server.requests


def test_a_line_ends_where_files_say_and_has_each_key_once(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    case = '{"id": "a", "submission": "done\u2028\x85x", "expected": {"done": "yes"}%s}\n'
    Path("cases.jsonl").write_text(case % "" + "\r\n" + case % ', "submission": "x"', newline="")
    assert check() == 2
    assert capsys.readouterr().err == "bf: cases.jsonl:3: submission stands there twice; keep one of them\n"


def test_what_cannot_be_asked_is_one_clear_error(
    server: ModelServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert check() == 2
    err = capsys.readouterr().err
    assert "bf: ANTHROPIC_API_KEY required for model 'anthropic/claude-scripted-1' of the judge" in err
    assert "with --env ANTHROPIC_API_KEY=VALUE" in err
    assert check("--env", "x") == 2
    assert "--env is 'x'; give NAME=VALUE" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        check("--repeats", "0")
    assert "'0' is not a whole number from 1 to 1000" in capsys.readouterr().err
    Path("rubric.toml").write_text("[[criterion]]\ntpe = 1")
    assert check() == 2
    assert "rubric.toml:2: [[criterion]] tpe is not a known key; did you mean type?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pairs", "value"),
    [
        ([(1, 1), (0, 0)], 1.0),
        ([(1, 0), (0, 1)], -1.0),
        ([(1, 1), (1, 0), (0, 1), (0, 0)], 0.0),
        ([(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15, 0.4),  # the usual example of textbooks
        ([(1, 1), (1, 1)], None),
        ([], None),
        ([(0, 0.25), (0.5, 0.5), (1, 1)], pytest.approx(0.923, abs=0.001)),
    ],
)
def test_kappa(pairs: list[tuple[float, float]], value: float | None) -> None:
    assert kappa(pairs) == (value if value is None else pytest.approx(value))


def test_tasks_check_reads_rubrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from project import write_task

    files = {"tests/rubric.toml": '[[criterion]]\ndescription = "x"\ntype = "lickert"\n'}
    write_task(tmp_path / "a", toml='[verifier]\ntype = "llm-judge"\n', test=None, files=files)
    assert main(["tasks", "check", str(tmp_path)]) == 1
    assert 'tests/rubric.toml:3: [[criterion]] type is "lickert"; did you mean likert?' in capsys.readouterr().err
