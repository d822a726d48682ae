"""The agents that the suite runs, and the one run of each sandbox that all its tests look at."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from host_watch import HostWatch
from model_server import Fail, ModelServer, Request, Run, Say, Stall, Write
from needs import AGENTS as CHOSEN
from project import Project

from pytest_benchflow.agents.bundles.store import BundleStore

LARGE = {"openhands", "openclaw"} & {*CHOSEN}
"""They take gigabytes of memory and up to half a minute to start."""
RUN_TIMEOUT_SEC = 1800
"""Of one run with all agents; without the large ones it takes one or two minutes where nothing else runs."""


@dataclass(frozen=True)
class RealAgent:
    """One agent, and what is known of it before it runs."""

    name: str
    key: str
    """The variable that its API key is in."""
    model: str
    """As the user asks for it."""
    served: str
    """As the provider gets it."""
    tokens: int | None = None
    """Output tokens it reports for the task that is solved, None if it reports none."""


AGENTS = {
    agent.name: agent
    for agent in (
        RealAgent("gemini", "GEMINI_API_KEY", "gemini-2.5-pro", "gemini-2.5-pro", tokens=5 * 56),
        RealAgent("claude-agent-acp", "ANTHROPIC_API_KEY", "claude-scripted", "claude-scripted", tokens=5 * 56),
        RealAgent("codex-acp", "OPENAI_API_KEY", "codex-scripted", "codex-scripted", tokens=5 * 56),
        # It tells only of the last call of a turn.
        RealAgent("opencode", "OPENAI_API_KEY", "openai/opencode-scripted", "opencode-scripted", tokens=2 * 56),
        RealAgent("pi-acp", "OPENAI_API_KEY", "openai/pi-scripted", "pi-scripted"),
        RealAgent("openhands", "OPENAI_API_KEY", "openai/openhands-scripted", "openhands-scripted"),
        RealAgent("openclaw", "OPENAI_API_KEY", "openai/openclaw-scripted", "openclaw-scripted"),
    )
    if agent.name in CHOSEN
}
KEYS = {
    "GEMINI_API_KEY": "test-gemini-4c1b0e7f9a",
    "ANTHROPIC_API_KEY": "test-anthropic-93d5a2b8c6",
    "OPENAI_API_KEY": "test-openai-7e60f1d4ab",
}
WRONG_KEY = "test-wrong-51c9e8d2f7"
FOREIGN = {"HOST_ONLY_TOKEN": "test-foreign-0b7a6c5d4e"}
"""In the runner's environment, and no agent's business."""
SECRETS = (*KEYS.values(), WRONG_KEY, *FOREIGN.values())

SECOND_PROMPT = "Now join the two files."
REMEMBERED = "The word is heliotrope."
TEST = "if {}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
SOLVED = TEST.format('[ "$(cat /app/done.txt)" = "one two" ]')
"""What both turns leave together."""
BEGUN = TEST.format("[ -s /app/done.txt ]")

SKILL = "fold-cranes"
SKILL_TEXT = f"---\nname: {SKILL}\ndescription: How to fold cranes of paper, for when someone asks.\n---\nFold twice.\n"

TASKS: dict[str, tuple[str, float]] = {
    "solved": ("Make two files.", 120),
    "wrong-model": ("Be somebody else.", 60),
    "wrong-key": ("Come with a wrong key.", 100),
    "failing": ("Meet a provider that fails.", 150),
    "limited": ("Meet a provider that has a limit.", 250),
    "silent": ("Wait for an answer.", 25),
    "endless": ("Begin, and never end.", 50),
    "crash": ("Begin, and die.", 120),
}
"""Instruction and seconds by name."""

CONFTEST = f"""
import os
from dataclasses import replace

KEYS = { {name: agent.key for name, agent in AGENTS.items()}!r}


def pytest_bf_modify_config(config, task):
    if task.short_name == "solved":
        return replace(config, skills_dir="skills", skill_mode="with-skill")
    if task.short_name == "wrong-model":
        return replace(config, model=f"{{config.model}}-wrong")
    if task.short_name == "wrong-key":
        return replace(config, agent_env={{**config.agent_env, KEYS[config.agent]: os.environ['WRONG_KEY']}})
    return None
"""


@dataclass(frozen=True)
class Cell:
    """One rollout and everything it left."""

    status: str
    result: dict[str, Any]
    case: ET.Element
    directory: Path
    requests: list[Request]

    @property
    def error(self) -> dict[str, Any]:
        """The error, which there has to be."""
        assert self.result["error"], self.result
        return self.result["error"]

    @property
    def trajectory(self) -> list[dict[str, Any]]:
        """The events on disk."""
        lines = (self.directory / "trajectory" / "acp_trajectory.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind."""
        return [event for event in self.trajectory if event["type"] == kind]


@dataclass(repr=False)
class Bench:
    """One run of all agents in one sandbox."""

    project: Project
    server: ModelServer
    run: pytest.RunResult
    watch: HostWatch
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)

    def read(self) -> Bench:
        """Take the results from the reports that the run has written."""
        cases = {self._name(case): case for case in ET.parse(self.project.root / "r.xml").iter("testcase")}
        for entry in json.loads((self.project.root / "r.json").read_text())["rollouts"]:
            result = entry["result"]
            agent, task = result["agent"], Path(result["task_path"]).name
            requests = [
                request
                for request in self.server.calls
                if (request.model or "").removesuffix("-wrong") == AGENTS[agent].served
                and any(TASKS[task][0] in prompt for prompt in request.prompts)
            ]
            case = cases[f"tasks.{task}.{task}/{entry['id'].partition('::')[2]}"]
            directory = self.project.root / result["rollout_dir"]
            self.cells[agent, task] = Cell(entry["status"], result, case, directory, requests)
        return self

    @staticmethod
    def _name(case: ET.Element) -> str:
        return f"{case.attrib['classname']}.{case.attrib['name']}".replace(".task.toml", "")


def scripted_server() -> ModelServer:
    """Return the provider that all tasks meet."""
    server = ModelServer(models=[agent.served for agent in AGENTS.values()], strict=True, keys=set(KEYS.values()))
    server.script(TASKS["solved"][0], Run("echo one > one.txt; env"), Write("/app/two.txt", "two\n"), Say(REMEMBERED))
    server.script(SECOND_PROMPT, Run("paste -d ' ' one.txt two.txt > done.txt"), Say("Joined."), seen=REMEMBERED)
    server.script(TASKS["failing"][0], Fail(500))
    server.script(TASKS["limited"][0], Fail(429))
    server.script(TASKS["silent"][0], Stall())
    server.script(TASKS["endless"][0], Run("echo half > done.txt; sleep 1000"), Stall())
    server.script(TASKS["crash"][0], Run("echo half > done.txt"), Run("kill -9 -1"), Say("Still here."))
    return server


def run_agents(project: Project, sandbox: str, *options: str, **env: str) -> Iterator[Bench]:
    """Run every task with every agent in one sandbox, then give what came of it."""
    project.write({"conftest.py": CONFTEST, f"skills/{SKILL}/SKILL.md": SKILL_TEXT})
    for name, (instruction, seconds) in TASKS.items():
        toml = f"[agent]\ntimeout_sec = {seconds:g}\n"
        test = SOLVED if name == "solved" else BEGUN
        project.task(f"tasks/{name}", instruction=f"{instruction}\n", toml=toml, test=test, solve=None)
    models = [part for name, agent in AGENTS.items() for part in ("--bf-model", f"{name}={agent.model}")]
    prompts = ["--bf-prompt=@instruction", f"--bf-prompt={SECOND_PROMPT}"]
    pace = ["--bf-concurrency=2", "--bf-timeout-multiplier=3"] if LARGE else ["--bf-concurrency=8"]
    reports = ["--junitxml=r.xml", "--bf-json=r.json", "--bf-retries=0", *pace]
    with scripted_server() as server:
        places = {
            "GOOGLE_GEMINI_BASE_URL": server.url,
            "ANTHROPIC_BASE_URL": server.url,
            "OPENAI_BASE_URL": f"{server.url}/v1",
        }
        given = [part for key, value in places.items() for part in ("--bf-agent-env", f"{key}={value}")]
        chosen = ["--bf-agent", ",".join(AGENTS), *models, *prompts, *given]
        around = {**KEYS, **FOREIGN, "WRONG_KEY": WRONG_KEY, "BF_CACHE_DIR": str(BundleStore().path.parent), **env}
        with HostWatch(SECRETS, mark=server.url.removeprefix("http://")) as watch:
            run = project.run(
                "tasks",
                "--bf-sandbox",
                sandbox,
                *options,
                *chosen,
                *reports,
                env=around,
                timeout_sec=RUN_TIMEOUT_SEC,
                cold=True,
            )
        yield Bench(project, server, run, watch).read()
