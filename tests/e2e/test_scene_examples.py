"""The scene files and Python patterns of the examples, each played in a real sandbox."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

import pytest
from fake_agent import registry_of
from project import Project, write_task
from scripted_agent import ScriptedAgent, ScriptedSession

from pytest_benchflow.cli.main import main
from pytest_benchflow.rollout import RolloutConfig, RolloutResult, load_rollout_file, run_rollout

TESTS = Path(__file__).parent.parent
EXAMPLES = TESTS.parent / "examples"
FILES = sorted((EXAMPLES / "scenes").glob("*.yaml"))
PATTERNS = {
    "single-turn": "failed",
    "self-review": "passed",
    "coder-reviewer": "passed",
    "cross-model-review": "passed",
    "tutored": "passed",
    "skill-then-solve": "passed",
    "verify-retry": "passed",
}
TEST = """
if [ ! -e /app/spoiled ] && grep -qx right /app/answer.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
SOLVE = "echo right > /app/answer.txt"
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from scripted_agent import ScriptedAgent

def pytest_bf_register_agents(registry):
    registry.register(ScriptedAgent("scripted"))
    registry.register(ScriptedAgent("other"))
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox has no user that only reads")


def test_there_is_one_file_per_pattern() -> None:
    assert {path.stem for path in FILES} == set(PATTERNS)


@pytest.fixture(scope="module")
def played(new_project: Callable[..., Project]) -> tuple[Project, pytest.RunResult]:
    """Play every scene file on one task, in one run."""
    project = new_project()
    project.task("tasks/answer", instruction="Write the answer.", test=TEST, solve=SOLVE)
    project.write({"conftest.py": CONFTEST})
    shutil.copytree(EXAMPLES / "scenes", project.root / "scenes")
    review = project.root / "scenes/cross-model-review.yaml"
    review.write_text(review.read_text().replace("gemini,", "scripted,").replace("claude-agent-acp", "other"))
    return project, project.run(
        "tasks", "--bf-scene", "scenes/*.yaml", "--bf-agent", "scripted", "--bf-sandbox", "local", "-v"
    )


Played = tuple[Project, pytest.RunResult]


def by_scene(project: Project) -> dict[str, dict[str, object]]:
    return {str(result["scene"]): result for result in project.results().values()}


def test_every_file_makes_an_item(played: Played) -> None:
    project, done = played
    done.assert_outcomes(passed=6, failed=1)
    found = {scene: "passed" if result["reward"] == 1.0 else "failed" for scene, result in by_scene(project).items()}
    assert found == PATTERNS


@pytest.mark.parametrize(
    ("scene", "prompts"),
    [
        ("single-turn", ["Write the answer."]),
        ("self-review", ["Write the answer.", "Look at your work"]),
        ("coder-reviewer", ["Write the answer.", "Somebody has worked", "Messages from other agents"]),
        ("cross-model-review", ["Write the answer.", "Somebody has worked", "Messages from other agents"]),
        ("tutored", ["Write the answer.", "Write the answer.\n\nThe tests do not pass yet"]),
        ("skill-then-solve", ["Read the task in", "Read /app/generated-skill.md", "Write the answer."]),
        ("verify-retry", ["Write the answer.", "You have worked on this task before"]),
    ],
)
def test_the_agents_are_told_what_the_pattern_says(played: Played, scene: str, prompts: list[str]) -> None:
    directory = Path(str(by_scene(played[0])[scene]["rollout_dir"]))
    told = json.loads((directory / "prompts.json").read_text())
    assert len(told) == len(prompts)
    for text, start in zip(told, prompts, strict=True):
        assert text.startswith(start)


def test_scenes_are_selected_by_their_name(played: Played) -> None:
    ids = played[0].ids("tasks", "--bf-scene", "scenes/*.yaml", "--bf-agent", "scripted", "-m", "bf(scene='tutored')")
    assert [name.rpartition("::")[2] for name in ids] == ["scripted/tutored"]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Coroutine[None, None, RolloutResult]]:
    """Give tests the function that plays a pattern of the Python module with some agents."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "scenes"))
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    task = write_task(tmp_path / "answer", instruction="Write the answer.", test=TEST, solve=SOLVE)

    async def play_one(name: str, *agents: ScriptedAgent) -> RolloutResult:
        make: Callable[..., RolloutConfig] = getattr(importlib.import_module("patterns"), name.replace("-", "_"))
        config = make(task, *(agent.name for agent in agents))
        return await run_rollout(replace(config, sandbox="local"), agents=registry_of(*agents))

    return play_one


Play = Callable[..., Coroutine[None, None, RolloutResult]]


@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "cross-model-review"])
async def test_a_pattern_in_python_does_the_same(name: str, play: Play) -> None:
    result = await play(name, ScriptedAgent("scripted"))
    assert ("passed" if result.passed else "failed") == PATTERNS[name]


async def test_a_reviewer_can_look_and_write_to_the_coder_and_nothing_else(play: Play) -> None:
    coder, reviewer = ScriptedAgent("scripted"), ScriptedAgent("other")
    assert (await play("cross-model-review", coder, reviewer)).passed
    (session,) = reviewer.sessions
    assert isinstance(session, ScriptedSession)
    assert "Permission denied" in session.seen[0]
    assert "wrong" in session.seen[0]
    assert "**From reviewer:**\nThe answer has to be right." in coder.heard[1][0]


def test_the_job_file_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("hello-world", "sql-top-customers", "normalise-dates"):
        shutil.copytree(TESTS.parent / "tasks" / name, project.root / "tasks" / name)
    job = project.root / "examples/job.yaml"
    job.parent.mkdir()
    shutil.copy(EXAMPLES / "job.yaml", job)
    monkeypatch.setenv("BF_CACHE_DIR", str(project.cache))
    monkeypatch.chdir(project.root)
    assert main(["run", str(job)]) == 0
    assert "2 of 2 passed (100.0%)" in capsys.readouterr().out
    project.run("--bf-config", str(job)).assert_outcomes(passed=2)


@pytest.mark.parametrize("path", FILES)
def test_files_have_no_warnings(path: Path) -> None:
    assert load_rollout_file(path).warnings == ()
