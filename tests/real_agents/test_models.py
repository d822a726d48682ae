"""Which model answers: short names, names that an agent changes, answers of another model; told by real agents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from model_server import As, ModelServer, Run, Say
from project import Project
from real_agents import AGENTS, KEYS, RUN_TIMEOUT_SEC

from pytest_benchflow.agents.bundles.store import BundleStore

SHORT, PROMOTED, SWITCHED = "Use a short name.", "Use an old name.", "Change over."
NAMES = {
    ("gemini", "short"): "flash",
    ("gemini", "promoted"): "gemini-3.5-flash",
    ("claude-agent-acp", "short"): "sonnet",
    ("claude-agent-acp", "switched"): "claude-sonnet-4-5",
}
CONFTEST = f"""
from dataclasses import replace

NAMES = {NAMES!r}


def pytest_bf_modify_config(config, task):
    return replace(config, model=NAMES[config.agent, task.short_name])


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if (item.cell.agent, item.path.parent.name) in NAMES]
"""
pytestmark = pytest.mark.skipif(not {"gemini", "claude-agent-acp"} <= {*AGENTS}, reason="needs gemini and claude")


class Ran:
    """One run of both agents."""

    def __init__(self, project: Project, server: ModelServer) -> None:
        self.server = server
        report = json.loads((project.root / "r.json").read_text())
        self.results: dict[tuple[str, str], dict[str, Any]] = {
            (entry["result"]["agent"], Path(entry["result"]["task_path"]).name): entry["result"]
            for entry in report["rollouts"]
        }

    def asked(self, prompt: str, wire: str) -> set[str | None]:
        """Return the models that were asked on a prompt."""
        return {request.model for request in self.server.prompted(prompt) if request.wire == wire}


@pytest.fixture(scope="module")
def ran(new_project: Callable[..., Project]) -> Iterator[Ran]:
    project = new_project("models")
    project.write({"conftest.py": CONFTEST})
    for name, instruction in {"short": SHORT, "promoted": PROMOTED, "switched": SWITCHED}.items():
        project.task(f"tasks/{name}", instruction=instruction, solve=None)
    with ModelServer(keys={*KEYS.values()}) as server:
        for prompt in (SHORT, PROMOTED):
            server.script(prompt, Run("echo done > done.txt"), Say("Done."))
        server.script(SWITCHED, Run("echo done > done.txt"), As("claude-sonnet-4-0", Say("Done.")))
        urls = (f"GOOGLE_GEMINI_BASE_URL={server.url}", f"ANTHROPIC_BASE_URL={server.url}")
        given = [part for url in urls for part in ("--bf-agent-env", url)]
        agents = ["--bf-agent=gemini,claude-agent-acp", "--bf-sandbox=local", "--bf-agent-timeout=120"]
        environment = {**KEYS, "BF_CACHE_DIR": str(BundleStore().path.parent)}
        reports = ["--bf-json=r.json", "--bf-retries=0"]
        project.run("tasks", *agents, *given, *reports, env=environment, timeout_sec=RUN_TIMEOUT_SEC, cold=True)
        yield Ran(project, server)


@pytest.mark.parametrize(
    ("agent", "wire", "full"),
    [("gemini", "gemini", "gemini-3.8-flash"), ("claude-agent-acp", "anthropic", "claude-sonnet-5-5")],
)
def test_a_short_name_is_the_model_that_the_agent_takes_it_for(ran: Ran, agent: str, wire: str, full: str) -> None:
    result = ran.results[agent, "short"]
    assert (result["error"], result["models"]) == (None, [full])
    assert ran.asked(SHORT, wire) == {full}
    assert f"{agent}: {NAMES[agent, 'short']} stands for {full}" in result["notes"]


def test_a_name_that_the_agent_changes_is_an_error(ran: Ran) -> None:
    result = ran.results["gemini", "promoted"]
    assert ran.asked(PROMOTED, "gemini") == {"gemini-3.8-flash"}
    assert result["error"]["category"] == "provider"
    assert "gemini went over from gemini-3.5-flash to gemini-3.8-flash by itself" in result["error"]["message"]
    assert "gemini-3.8-flash" in result["models"]


def test_an_answer_of_another_model_in_the_middle_of_a_turn_is_an_error(ran: Ran) -> None:
    result = ran.results["claude-agent-acp", "switched"]
    assert "went over from claude-sonnet-4-5 to claude-sonnet-4-0 by itself" in result["error"]["message"]
    assert result["models"] == ["claude-sonnet-4-5", "claude-sonnet-4-0"]
    assert result["error"]["retryable"] is False
