"""The scene patterns of the documentation, played by real agents; all else about them is in test_real_agents.py."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer, Request, Run, Say
from needs import lacks_docker
from project import Project
from real_agents import AGENTS, KEYS, RUN_TIMEOUT_SEC

from pytest_benchflow.agents.bundles.store import BundleStore

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenes"
PATTERNS = [
    "single-turn",
    "self-review",
    "coder-reviewer",
    "tutored",
    "skill-then-solve",
    "verify-retry",
    "killed",
    "cross-model-review",
]
PLAYERS = [name for name in ("gemini", "claude-agent-acp") if name in AGENTS]
CELLS = [(pattern, player) for pattern in PATTERNS for player in PLAYERS if pattern != "cross-model-review"]
CELLS += [("cross-model-review", "gemini")]
SECRET = "heliotrope"
"""Said by the model at the end of its first turn: whoever knows it has that turn's context."""
LEARNED = "marigold"
WRONG, RIGHT = Run("echo wrong > done.txt"), Run("echo right > done.txt")
LETTER = json.dumps({"to": "coder", "content": "write the right word"})
SOLVED = 'if [ "$(cat done.txt)" = right ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt'
KILLED = 'prompts: ["@instruction", "Now die.", "Never sent."]\n'

CONFTEST = """
def pytest_collection_modifyitems(config, items):
    # Every pattern has a task of its own, because the model is told apart by what the task says.
    def fits(item):
        scene = item.get_closest_marker("bf").kwargs["scene"]
        return item.path.parent.name == scene

    others = [item for item in items if not fits(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if fits(item)]
"""


class Played:
    """One run of all patterns in one sandbox."""

    def __init__(self, project: Project, server: ModelServer) -> None:
        self.server = server
        report = json.loads((project.root / "r.json").read_text())
        self.results: dict[tuple[str, str], dict[str, Any]] = {
            (entry["result"]["scene"], entry["result"]["agent"]): entry["result"] for entry in report["rollouts"]
        }

    def events(self, pattern: str, player: str, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind."""
        path = Path(self.results[pattern, player]["rollout_dir"], "trajectory", "acp_trajectory.jsonl")
        return [event for event in map(json.loads, path.read_text().splitlines()) if event["type"] == kind]

    def lines(self, pattern: str, player: str, name: str) -> list[dict[str, Any]]:
        """Return the lines of a file of the rollout."""
        text = Path(self.results[pattern, player]["rollout_dir"], name).read_text()
        return [json.loads(line) for line in text.splitlines()]

    def requests(self, text: str, player: str) -> list[Request]:
        """Return what the player's model was asked while it worked on a prompt that holds a text."""
        wire = {"gemini": "gemini", "claude-agent-acp": "anthropic"}[player]
        return [request for request in self.server.prompted(text) if request.wire == wire]


def task_of(pattern: str) -> str:
    return f"Write the word for {pattern}."


def provider() -> ModelServer:
    """Return the model that plays every pattern; it does right only if it knows what it should and nothing else."""
    served = [AGENTS[name].served for name in PLAYERS]
    server = ModelServer(models=[*served, "gemini-3.8-flash", "claude-haiku-4-5"], keys=set(KEYS.values()))
    script = server.script
    script("Now die.", Run("kill -9 -1"), Say("Still here."))
    script(re.compile("began like this.*echo right", re.DOTALL), RIGHT, Say("Taught."), unseen=SECRET)
    script("You have worked on this task before", RIGHT, Say("Again."), unseen=SECRET)
    script("Look at your work", RIGHT, Say("Reviewed."), seen=SECRET)
    script(
        "Review what is in the workspace",
        Run("echo vandal > done.txt; echo mine > other.txt; cat done.txt"),
        Run(f"echo '{LETTER}' > /app/.outbox/coder.json"),
        Say("Told."),
        unseen=SECRET,
    )
    mend = Run("grep -qx wrong done.txt && [ ! -e other.txt ] && echo right > done.txt")
    script(re.compile("write the right word.*You have worked", re.DOTALL), mend, Say("Mended."), unseen=SECRET)
    script("Write to /app/generated-skill.md", Run("echo right > generated-skill.md"), Say(f"It is {SECRET}."))
    script("Read /app/generated-skill.md", Run("cat generated-skill.md"), Say(f"It is {LEARNED}."), unseen=SECRET)
    script(task_of("skill-then-solve"), Run("mv generated-skill.md done.txt"), Say("Done."), seen=LEARNED)
    for pattern in ("single-turn", "killed"):
        script(task_of(pattern), RIGHT, Say("Done."))
    for pattern in ("self-review", "coder-reviewer", "tutored", "verify-retry", "cross-model-review"):
        script(task_of(pattern), WRONG, Say(f"It is {SECRET}."))
    return server


@pytest.fixture(scope="module")
def played(new_project: Callable[..., Project]) -> Iterator[Played]:
    """Play everything once, in Docker where there is one: e2e/test_scene_examples.py has the local sandbox."""
    sandbox = "local" if lacks_docker() else "docker"
    project = new_project("patterns")
    project.write({"conftest.py": CONFTEST, "killed.yaml": KILLED})
    for pattern in PATTERNS:
        solve = "echo right > /app/done.txt"
        project.task(f"tasks/{pattern}", instruction=task_of(pattern), test=SOLVED, solve=solve)
    scenes = [f"--bf-scene={EXAMPLES}/{name}.yaml" for name in PATTERNS if name != "killed"] + [
        "--bf-scene=killed.yaml"
    ]
    models = [f"--bf-model={name}={AGENTS[name].model}" for name in PLAYERS]
    places = {"docker": ["--bf-docker-network=host"], "local": []}[sandbox]
    environment = {**KEYS, "BF_CACHE_DIR": str(BundleStore().path.parent)}
    if sandbox == "docker":
        environment["DOCKER_HOST"] = ""
    with provider() as server:
        urls = [f"GOOGLE_GEMINI_BASE_URL={server.url}", f"ANTHROPIC_BASE_URL={server.url}"]
        options = ["--bf-agent", ",".join(PLAYERS), "--bf-sandbox", sandbox, "--bf-agent-timeout=120"]
        given = [part for url in urls for part in ("--bf-agent-env", url)]
        project.run(
            "tasks",
            *options,
            *places,
            *scenes,
            *models,
            *given,
            "--bf-concurrency=4",
            "--bf-json=r.json",
            env=environment,
            timeout_sec=RUN_TIMEOUT_SEC,
            cold=True,
        )
        yield Played(project, server)


pytestmark = pytest.mark.skipif(len(PLAYERS) < 2, reason="needs gemini and claude-agent-acp")


@pytest.mark.parametrize(("pattern", "player"), CELLS)
def test_a_pattern_earns_its_reward(played: Played, pattern: str, player: str) -> None:
    result = played.results[pattern, player]
    assert (result["error"], result["reward"]) == (None, 1.0), result


@pytest.mark.parametrize("player", PLAYERS)
def test_context_is_kept_within_a_role(played: Played, player: str) -> None:
    for request in played.requests("Look at your work", player):
        assert request.saw(SECRET)


@pytest.mark.parametrize("player", PLAYERS)
@pytest.mark.parametrize("prompt", ["Review what is in the workspace", "began like this", "worked on this task before"])
def test_context_is_gone_with_the_role_the_scene_and_the_round(played: Played, prompt: str, player: str) -> None:
    requests = played.requests(prompt, player)
    assert requests
    assert not [request for request in requests if request.saw(SECRET)]


def test_two_models_review_each_other(played: Played) -> None:
    asked = {request.model for request in played.server.calls if request.saw(task_of("cross-model-review"))}
    assert asked == {"gemini-3.8-flash"}
    reviews = played.server.prompted("Review what is in the workspace")
    assert "claude-haiku-4-5" in {request.model for request in reviews}


@pytest.mark.parametrize("player", PLAYERS)
def test_rounds_are_recorded(played: Played, player: str) -> None:
    for pattern in ("tutored", "verify-retry"):
        rounds = played.lines(pattern, player, "user_rounds.jsonl")
        assert [row["rewards"] for row in rounds] == [{"reward": 0.0}, {"reward": 1.0}]
        assert [row["n_tool_calls"] for row in rounds] == [1, 1]


@pytest.mark.parametrize("player", PLAYERS)
def test_an_agent_killed_in_the_second_of_three_turns(played: Played, player: str) -> None:
    result = played.results["killed", player]
    assert (result["agent_outcome"], result["n_prompts"], result["reward"]) == ("crashed", 2, 1.0)
    told = [event["text"] for event in played.events("killed", player, "user_message")]
    assert told == [task_of("killed"), "Now die."]
    calls = played.events("killed", player, "tool_call")
    # The call that kills the agent may do so before the agent has told of it.
    assert [call["turn"] for call in calls] in ([1], [1, 2])
    assert calls[0]["status"] == "completed"
    assert not played.requests("Never sent.", player)
