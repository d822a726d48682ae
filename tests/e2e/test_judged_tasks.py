"""Tasks without a test script, scored by a judge: from pytest's command line to the files of the result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import As, Fail, ModelServer, Verbatim
from model_server.conversation import Conversation
from project import Project, write_files, write_native_task

from pytest_benchflow.cli.main import main

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


def test_the_oracle_passes_and_nop_fails(
    project: Project, server: ModelServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script("", grade)
    project.task("tasks/a", toml=TOML, test=None, files={"tests/rubric.toml": RUBRIC})
    price = "anthropic/claude-scripted-1=1/10"
    options = ("--bf-price", price, "--bf-max-cost", "1", "--bf-save-workspace", "--bf-job-name", "mine")
    run = judged(project, server, "--bf-selftest", *options)
    run.assert_outcomes(passed=2)
    run = judged(project, server, "--bf-max-cost", "1", "--bf-dry-run")
    run.stdout.fnmatch_lines(
        ["*the budget needs the price of the judge anthropic/claude-scripted-1, which is not known*"]
    )
    run.stdout.fnmatch_lines(["1 rollouts on local, 0 of them ready, *; 1 judged by a model"])
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
    assert (judge["input_tokens"], judge["output_tokens"], judge["cost_usd"]) == (2468, 112, 0.003588)
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
    assert [(each["id"], each["verdict"]) for each in evaluation["results"]] == [
        ("done", {"verdict": "pass", "reasoning": "I looked for it."}),
        ("style", {"score": 5, "reasoning": "It is short."}),
    ]
    monkeypatch.setenv("JUDGE_URL", server.url)
    monkeypatch.setenv("JUDGE_KEY", KEY)
    again = RUBRIC.replace('name = "done"', 'name = "done"\nfiles = ["no.txt"]') + "[judge.x]"
    project.write({"tasks/a/tests/rubric.toml": again})
    assert main(["regrade", str(project.root / "jobs/mine")]) == 1
    assert "x is not a known key" in capsys.readouterr().out
    project.write({"tasks/a/tests/rubric.toml": again.removesuffix("[judge.x]")})
    assert main(["regrade", str(project.root / "jobs/mine")]) == 0
    regraded = [json.loads(path.read_text()) for path in project.root.glob("jobs/mine/*/regrades/*/result.json")]
    assert sorted((result["agent"], result["reward"], result["judge"]["calls"]) for result in regraded) == [
        ("nop", 0.0, 2),
        ("oracle", 0.25, 2),
    ]
    assert KEY not in "".join(path.read_text("utf-8", "replace") for path in directory.rglob("*") if path.is_file())


def test_a_failing_judge_is_an_error_of_its_own_and_a_low_verdict_a_failure(
    project: Project, server: ModelServer
) -> None:
    files = {"tests/rubric.toml": RUBRIC}
    project.task("tasks/a-broken", toml=TOML, test=None, files=files, instruction="Say broken.")
    project.task("tasks/b-other", toml=TOML, test=None, files=files, instruction="Say other.")
    project.task("tasks/c-low", toml=TOML, test=None, files=files, instruction="Say low.")
    project.task(
        "tasks/d-rubric", toml=TOML, test=None, files={"tests/rubric.toml": RUBRIC.replace("likert", "licert")}
    )
    low = {"done": {"reason": "It does not.", "verdict": "no"}, "style": {"reason": "Clumsy.", "verdict": 2}}
    server.script("Say broken", Fail(500, message="the model is down", retry_after=0))
    server.script("Say other", As("claude-cheap-1", Verbatim(json.dumps(low))))
    server.script(
        "Say low", lambda asked: Verbatim(json.dumps({k: v for k, v in low.items() if f"- {k}:" in asked.prompts[0]}))
    )
    run = judged(project, server, "--bf-retries", "0")
    run.assert_outcomes(errors=3, failed=1)
    broken, other, lowest, rubric = rollouts(project)
    assert (broken["error"]["category"], broken["error"]["phase"], broken["error"]["retryable"]) == (
        "judge",
        "verify",
        True,
    )
    assert "HTTP 500: the model is down" in broken["error"]["message"]
    assert broken["reward"] is None
    assert (other["error"]["category"], other["error"]["retryable"]) == ("judge", False)
    assert "claude-cheap-1 answered" in other["error"]["message"]
    assert (other["judge"]["model"], other["reward"]) == ("anthropic/claude-scripted-1", None)
    assert lowest["reward"] == 0.0625
    run.stdout.fnmatch_lines(["*reward 0.06 is below 1.00*judge: done 0.00 (It does not.), style 0.25 (Clumsy.)*"])
    assert (rubric["error"]["category"], rubric["error"]["phase"]) == ("task", "setup")
    assert 'rubric.toml:12: [[criterion]] type is "licert"; did you mean likert?' in rubric["error"]["message"]


def test_a_missing_key_is_known_before_anything_starts_and_may_skip(project: Project, server: ModelServer) -> None:
    toml = '[verifier]\ntype = "llm-judge"\n'
    project.task("tasks/a", toml=toml, test=None, files={"tests/rubric.toml": RUBRIC})
    run = project.run("tasks", "--bf-sandbox", "local", env={"ANTHROPIC_API_KEY": ""})
    run.assert_outcomes(errors=1)
    run.stdout.fnmatch_lines(
        ["*judge error in setup: ANTHROPIC_API_KEY required for model * of the judge but not set; set*"]
    )
    run = project.run(
        "tasks", "--bf-sandbox", "local", "--bf-missing-credentials", "skip", env={"ANTHROPIC_API_KEY": ""}
    )
    run.assert_outcomes(skipped=1)
    run = project.run("tasks", "--bf-sandbox", "local", "--bf-dry-run", env={"ANTHROPIC_API_KEY": ""})
    run.stdout.fnmatch_lines(["tasks/a/task.toml::oracle*ANTHROPIC_API_KEY required*"])
    key = f"ANTHROPIC_API_KEY={KEY}"
    server.script("", grade)
    project.run(
        "tasks",
        "--bf-sandbox",
        "local",
        "--bf-verifier-env",
        key,
        "--bf-verifier-env",
        f"ANTHROPIC_BASE_URL={server.url}",
    ).assert_outcomes(passed=1)


def test_what_is_judged_may_be_elsewhere_or_what_the_agent_said(project: Project, server: ModelServer) -> None:
    rubric = '[judge]\njudge = "anthropic/claude-scripted-1"\nfiles = [{files}]\n' + (
        '[[criterion]]\nname = "done"\ndescription = "x"\n'
    )
    solve = "mkdir -p /output/deep; echo done > /output/deep/done.txt; echo secret > /app/other.txt"
    files = {"tests/rubric.toml": rubric.format(files='"/output/**/*.txt"')}
    project.task("tasks/a", toml=TOML, test=None, solve=solve, files=files)
    judge = (
        TOML
        + '[verifier.judge]\ninput_dir = "/output"\nmodel = "anthropic/claude-scripted-2"\ncontext = "Mind the gap."\n'
    )
    files = {"tests/rubric.toml": rubric.format(files='"deep/done.txt"')}
    project.task("tasks/b", toml=judge, test=None, solve=solve, files=files)
    judge = TOML + '[verifier.judge]\ninput_type = "trajectory"\n'
    project.task(
        "tasks/c", toml=judge, test=None, solve="echo done.txt; echo; echo done", files={"tests/rubric.toml": RUBRIC}
    )
    server.script("", grade)
    judged(project, server).assert_outcomes(passed=3)
    first, second, third = rollouts(project)
    assert second["judge"]["model"] == "anthropic/claude-scripted-2"
    assert "is read in the dialect rewardkit: judge = model" in " ".join(first["notes"])
    prompts = [request.prompts[0] for request in server.requests]
    assert not any("secret" in prompt for prompt in prompts)
    assert [prompt for prompt in prompts if "file output/deep/done.txt ---" in prompt]
    assert [
        prompt for prompt in prompts if "# Context\n\nMind the gap." in prompt and "file deep/done.txt ---" in prompt
    ]
    assert [prompt for prompt in prompts if " trajectory ---\n" in prompt and "solution: " in prompt]
    assert third["reward"] == 1.0


def test_a_native_strategy_judges(project: Project, server: ModelServer) -> None:
    verifier = """\
        ---
        document_version: "0.3"
        verifier:
          name: v
          strategies:
            judge: {type: llm-judge, rubric: rubrics/a.toml, model: anthropic/claude-scripted-1}
        ---
        """
    task = write_native_task(
        project.root / "tasks/native",
        front='verifier:\n  env: {ANTHROPIC_BASE_URL: "${JUDGE_URL}", ANTHROPIC_API_KEY: "${JUDGE_KEY}"}\n',
    )
    (task / "verifier/test.sh").unlink()
    write_files(task, {"verifier/verifier.md": verifier, "verifier/rubrics/a.toml": RUBRIC})
    server.script("", grade)
    judged(project, server).assert_outcomes(passed=1)


def test_a_native_verifier_makes_its_reward_of_metrics(project: Project) -> None:
    task = write_native_task(project.root / "tasks/native")
    metrics = '{"metrics": {"a": 1, "b": 0.5}, "evidence": ["x"]}'
    document = """\
        ---
        verifier:
          strategies: {run: {type: script, command: ./run.sh}}
          outputs: {aggregate_policy: {field: reward, fallback: mean}}
        ---
        """
    script = f"#!/bin/sh\necho '{metrics}' >/logs/verifier/reward.json\n"
    write_files(task, {"verifier/verifier.md": document, "verifier/run.sh": script})
    project.run("tasks", "--bf-sandbox", "local", "--bf-threshold", "0.75").assert_outcomes(passed=1)
    (result,) = project.results().values()
    assert result["rewards"] == {"a": 1.0, "b": 0.5, "reward": 0.75}


@pytest.mark.docker
def test_judged_tasks_in_docker(project: Project, server: ModelServer) -> None:
    project.task("tasks/a", toml=TOML, test=None, files={"tests/rubric.toml": RUBRIC})
    server.script("", grade)
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    variables = {"JUDGE_URL": server.url, "JUDGE_KEY": KEY, "DOCKER_HOST": host}
    project.run("tasks", "--bf-sandbox", "docker", "--bf-selftest", env=variables).assert_outcomes(passed=2)
