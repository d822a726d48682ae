"""Real agents on a task without network: they reach their model, and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from model_server import ModelServer, Run, Say
from project import Project
from real_agents import AGENTS, KEYS, RUN_TIMEOUT_SEC, TEST

from pytest_benchflow.agents.bundles.store import BundleStore

ALONE = "Work where nobody can be reached."
LEAK = """
echo yes >done.txt
timeout 2 curl -sf -o leak.txt http://198.51.100.7/
timeout 2 getent hosts example.com >>leak.txt
true
"""
PLACES = {"local": "127.0.0.1", "docker": "host.docker.internal"}


@pytest.mark.parametrize("sandbox", ["local", pytest.param("docker", marks=pytest.mark.docker)])
def test_an_agent_reaches_its_model_and_nothing_else(new_project: Callable[..., Project], sandbox: str) -> None:
    project = new_project(f"closed-{sandbox}")
    solved = TEST.format("[ -s /app/done.txt ] && [ ! -s /app/leak.txt ]")
    toml = '[environment]\nnetwork_mode = "no-network"\n[agent]\ntimeout_sec = 120\n'
    project.task("tasks/alone", instruction=f"{ALONE}\n", toml=toml, test=solved, solve=None)
    with ModelServer(models=[agent.served for agent in AGENTS.values()], strict=True) as server:
        server.script(ALONE, Run(LEAK), Say("Done."))
        url = server.url.replace("127.0.0.1", PLACES[sandbox])
        places = {"GOOGLE_GEMINI_BASE_URL": url, "ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1"}
        options = [part for key, value in places.items() for part in ("--bf-agent-env", f"{key}={value}")]
        options += [part for name, agent in AGENTS.items() for part in ("--bf-model", f"{name}={agent.model}")]
        options += ["--bf-agent", ",".join(AGENTS), "--bf-concurrency=2", "--bf-retries=0", "--bf-json=r.json"]
        env = {**KEYS, "BF_CACHE_DIR": str(BundleStore().path.parent)}
        if sandbox == "docker":
            env["DOCKER_HOST"] = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        project.run("tasks", "--bf-sandbox", sandbox, *options, env=env, timeout_sec=RUN_TIMEOUT_SEC, cold=True)
    rollouts = json.loads((project.root / "r.json").read_text())["rollouts"]
    rewards = {entry["result"]["agent"]: (entry["result"]["reward"], entry["result"]["error"]) for entry in rollouts}
    assert rewards == dict.fromkeys(AGENTS, (1.0, None))
