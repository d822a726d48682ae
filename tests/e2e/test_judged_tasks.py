"""Tasks without a test script, scored by a judge: from pytest's command line to the files of the result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import ModelServer, Verbatim
from model_server.conversation import Conversation
from project import Project

RUBRIC = """\
[judge]
model = "anthropic/claude-scripted-1"

[[criterion]]
name = "done"
description = "done.txt says done."
weight = 3

[[criterion]]
name = "style"
description = "It is well written."
type = "likert"
"""
TOML = """\
[verifier]
type = "llm-judge"
[verifier.env]
ANTHROPIC_BASE_URL = "${JUDGE_URL}"
ANTHROPIC_API_KEY = "${JUDGE_KEY}"
"""
KEY = "sk-judge-0123456789"


def grade(conversation: Conversation) -> Verbatim:
    """Answer as a judge would who looks for a file."""
    asked = conversation.prompts[-1]
    submission = asked.partition("# Submission")[2]
    done = "done.txt" in submission and "\ndone\n" in submission
    answers: dict[str, object] = {}
    if "- done:" in asked:
        answers["done"] = {"reason": "I looked for it.", "verdict": "yes" if done else "no"}
    if "- style:" in asked:
        answers["style"] = {"reason": "It is short.", "verdict": 5 if done else 1}
    return Verbatim(json.dumps(answers))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


def judged(project: Project, server: ModelServer, *args: str, **env: str) -> pytest.RunResult:
    variables = {"JUDGE_URL": server.url, "JUDGE_KEY": KEY, **env}
    return project.run("tasks", "--bf-sandbox", "local", "--bf-json", "report.json", *args, env=variables)


def rollouts(project: Project) -> list[dict]:
    return [entry["result"] for entry in json.loads((project.root / "report.json").read_text())["rollouts"]]


def test_the_oracle_passes_and_nop_fails(project: Project, server: ModelServer) -> None:
    server.script("", grade)
    project.task("tasks/a", toml=TOML, test=None, files={"tests/rubric.toml": RUBRIC})
    run = judged(project, server, "--bf-selftest")
    run.assert_outcomes(passed=2)
    by_agent = {result["agent"]: result for result in rollouts(project)}
    assert (by_agent["oracle"]["reward"], by_agent["nop"]["reward"]) == (1.0, 0.0)
    assert [(each["name"], each["value"], each["raw"], each["weight"]) for each in by_agent["oracle"]["criteria"]] == [
        ("done", 1.0, True, 3.0),
        ("style", 1.0, 5, 1.0),
    ]
    judge = by_agent["oracle"]["judge"]
    assert (judge["model"], judge["models"], judge["calls"]) == (
        "anthropic/claude-scripted-1",
        ["claude-scripted-1"],
        2,
    )
    assert (judge["input_tokens"], judge["output_tokens"], judge["cost_usd"]) == (2468, 112, None)
    directory = Path(by_agent["oracle"]["rollout_dir"])
    events = [json.loads(line) for line in (directory / "rewards.jsonl").read_text().splitlines()]
    assert [(event["type"], event["source"], event["value"], event["step_index"]) for event in events] == [
        ("dense", "criterion:done", 1.0, 0),
        ("dense", "criterion:style", 1.0, 1),
        ("terminal", "verifier", 1.0, None),
    ]
    kept = {path.name for path in (directory / "verifier").iterdir()}
    assert kept == {"reward.json", "reward-details.json", "evaluation_details.json", "judge-calls.jsonl"}
    evaluation = json.loads((directory / "verifier/evaluation_details.json").read_text())
    assert (evaluation["score"], evaluation["n_passed"], evaluation["n_total"]) == (1.0, 2, 2)
    assert KEY not in "".join(path.read_text("utf-8", "replace") for path in directory.rglob("*") if path.is_file())
