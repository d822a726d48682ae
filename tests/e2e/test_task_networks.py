"""What tasks reach: a server of their own and nobody else's, and in each phase the hosts that it allows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from outside import outside_of_a_run
from project import Project

SERVE = """
cd /app && echo done >done.txt
setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null &
for try in {1..100}; do curl -sf http://127.0.0.1:8000/ >/dev/null && exit 0; sleep 0.1; done
exit 1
"""
ASK = 'echo "$(curl -sf http://127.0.0.1:8000/done.txt | grep -c done)" >/logs/verifier/reward.txt'

PHASES = """
[environment]
network_mode = "denylist"
blocked_hosts = ["two.example"]
[agent]
network_mode = "allowlist"
allowed_hosts = ["one.example"]
[verifier]
network_mode = "no-network"
[[environment.setup_commands]]
command = "curl -sf http://zero.example/ >/app/zero; curl -sf http://two.example/ >/app/two; true"
"""
REACH = "for host in one three; do curl -sf http://$host.example/ >/app/$host; done; true"
COMPARE = """
curl -sf http://zero.example/ >/app/late
[ "$(cd /app && cat zero one)" = "hello from zero.example
hello from one.example" ] && [ ! -s /app/two ] && [ ! -s /app/three ] && [ ! -s /app/late ]
echo $((1 - $?)) >/logs/verifier/reward.txt
"""

CLOSED_AGENT = """
[environment]
network_mode = "denylist"
blocked_hosts = ["two.example"]
[agent]
network_mode = "no-network"
"""
TRY = "curl -sf http://one.example/ >/app/one || echo closed >/app/status"
REOPENED = """
[ -s /app/status ] && [ ! -s /app/one ] && [ "$(curl -sf http://one.example/)" = "hello from one.example" ]
echo $((1 - $?)) >/logs/verifier/reward.txt
"""


@pytest.mark.parametrize("sandbox", ["local", pytest.param("docker", marks=pytest.mark.docker)])
def test_neighbours_and_phases(new_project: Callable[..., Project], sandbox: str) -> None:
    project = new_project()
    for name in ("one", "two"):
        project.task(f"tasks/{name}", solve=SERVE, test=ASK)
    project.task("tasks/phases", solve=REACH, test=COMPARE, toml=PHASES)
    project.task("tasks/reopened", solve=TRY, test=REOPENED, toml=CLOSED_AGENT)
    with outside_of_a_run() as world:
        env = {"http_proxy": world.url, "https_proxy": world.url, "no_proxy": ""}
        env |= {} if sandbox == "local" else {"DOCKER_HOST": os.environ.get("DOCKER_HOST", "")}
        options = ("--bf-selftest", "--bf-concurrency=8", f"--bf-sandbox={sandbox}", "--bf-json=report.json")
        done = project.run("tasks", *options, env=env)
    assert done.ret == 0
    report = json.loads((project.root / "report.json").read_text())
    results = {entry["id"]: entry["result"] for entry in report["rollouts"]}
    assert {id: result["reward"] for id, result in results.items()} == {
        f"tasks/{task}/task.toml::{agent}": reward
        for task in ("one", "phases", "reopened", "two")
        for agent, reward in (("nop", 0.0), ("oracle", 1.0))
    }
    notes = results["tasks/phases/task.toml::oracle"]["notes"]
    assert any("network refused" in note and "three.example" in note for note in notes)
