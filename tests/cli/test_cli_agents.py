"""`bf agents`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_benchflow.agents import AcpAgent, AgentRegistry
from pytest_benchflow.agents.bundles.bundle import FACTS, Bundle
from pytest_benchflow.agents.registry import BUILT_IN
from pytest_benchflow.cli.main import main

Run = Callable[..., subprocess.CompletedProcess[str]]
SECRET = "sk-very-secret-0123"
_BF = "import sys; from pytest_benchflow.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `bf` where nothing is set, logged in or installed."""
    (tmp_path / "home").mkdir()

    def bf(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "BF_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.run(
            [sys.executable, "-c", _BF, *args],
            cwd=tmp_path,
            env={**own, "PYTHONPATH": os.pathsep.join(sys.path), **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return bf


def here(listing: str) -> dict[str, str]:
    """Return the last column of the table by agent."""
    head, *rows = listing.splitlines()
    at = head.index("here")
    return {row.split()[0]: row[at:].strip() for row in rows}


def test_every_agent_is_listed_with_what_it_lacks(run: Run) -> None:
    done = run("agents")
    assert (done.returncode, done.stderr) == (0, "")
    found = here(done.stdout)
    assert [*found] == sorted({*BUILT_IN, "oracle", "nop"})
    assert found["oracle"] == found["nop"] == "ready"
    assert found["claude-agent-acp"] == "ANTHROPIC_API_KEY not set, no host login; not installed yet"
    assert found["gemini"] == "GEMINI_API_KEY not set, no host login; not installed yet"
    assert found["grok"] == "XAI_API_KEY not set; not installed yet"
    assert found["opencode"] == "no provider's key is set, for example OPENAI_API_KEY; not installed yet"
    head, row = done.stdout.splitlines()[:2]
    assert head.split() == ["agent", "aliases", "protocol", "version", "auth", "here"]
    assert row.split()[:4] == ["claude-agent-acp", "claude", "acp", "0.99.1"]


def test_what_is_there_is_not_missing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "home/.claude").mkdir()
    (tmp_path / "home/.claude/.credentials.json").write_text("{}")
    (tmp_path / ".env").write_text(f"OPENAI_API_KEY={SECRET}\n")
    done = run("agents", GOOGLE_API_KEY=SECRET)
    found = here(done.stdout)
    assert {name for name, lacks in found.items() if lacks == "not installed yet"} == {*BUILT_IN} - {"grok"}
    assert SECRET not in done.stdout


def test_an_installed_agent_is_ready(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for name in ("gemini", "pi-acp"):
        agent = AgentRegistry().get(name)
        assert isinstance(agent, AcpAgent)
        spec = agent.installation.spec
        assert spec is not None
        path = tmp_path / "cache/agents" / spec.name
        path.mkdir(parents=True, mode=0o700)
        (path / FACTS).write_text(Bundle(spec, path, "key", 1, 1, 1.0).facts())
    (tmp_path / "cache/agents").chmod(0o700)
    found = here(run("agents", GEMINI_API_KEY=SECRET).stdout)
    assert found["gemini"] == "ready"
    assert found["pi-acp"] == "ready with --bf-model"


def test_one_agent_is_shown_with_everything_but_values(run: Run) -> None:
    done = run("agents", "show", "claude", ANTHROPIC_API_KEY=SECRET)
    assert done.returncode == 0
    facts = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    shown = {key: value for key, value in facts if key != "variable"}
    assert shown["agent"] == "claude-agent-acp"
    assert shown["packages"] == "@agentclientprotocol/claude-agent-acp@0.99.1"
    assert shown["runtime"] == "node 22.23.3"
    assert shown["mode"] == "bypassPermissions"
    assert "~/.claude/.credentials.json (not found)" in shown["host"]
    assert shown["here"] == "not installed yet"
    assert ["variable", "ANTHROPIC_API_KEY (set)"] in facts
    assert ["variable", "CLAUDE_CODE_OAUTH_TOKEN (not set)"] in facts
    assert SECRET not in done.stdout


def test_an_agent_of_ones_own_is_shown_by_path_and_listed_from_a_directory(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/x.toml").write_text('name = "mine"\nlaunch = ["mine"]\nrequires_env = ["MINE_KEY"]\n')
    assert "MINE_KEY not set" in run("agents", "show", "mine/x.toml").stdout
    assert here(run("agents", BF_AGENTS_DIR="mine").stdout)["mine"] == "MINE_KEY not set"
    assert here(run("agents", BF_AGENTS_DIR="mine", MINE_KEY="x").stdout)["mine"] == "ready"


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        (["show", "clude"], {}, "Unknown agent: 'clude'. Did you mean: 'claude'?\n"),
        (["show", "no.toml"], {}, "no.toml: No such file or directory\n"),
        ([], {"BF_AGENTS_DIR": "nowhere"}, "BF_AGENTS_DIR: nowhere is not a directory\n"),
        ([], {"BF_DOTENV_PATH": "nowhere"}, "BF_DOTENV_PATH: there is no file nowhere\n"),
    ],
)
def test_what_is_wrong_is_one_line(run: Run, args: list[str], env: dict[str, str], message: str) -> None:
    done = run("agents", *args, **env)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_agents_are_listed_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agents", "--json"]) == 0
    agents = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert agents["oracle"]["here"] == "ready"
    assert "claude" in agents["claude-agent-acp"]["aliases"]
