"""Finding agents by the words users have for them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from pytest_benchflow.agents import (
    AcpAgent,
    AgentManifest,
    AgentRegistry,
    custom,
    get_agent,
    list_agents,
    parse_manifest,
    register_agent,
    registry,
)
from pytest_benchflow.core.errors import UsageError

MINE = 'name = "mine"\naliases = ["my"]\nlaunch = ["mine-acp"]\n'


@pytest.fixture(autouse=True)
def _own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, AgentManifest] = {}
    monkeypatch.setattr(registry, "REGISTERED", known)
    monkeypatch.setattr(custom, "REGISTERED", known)
    monkeypatch.delenv("BF_AGENTS_DIR", raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BF_AGENTS_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("gemini", "gemini"),
        ("claude", "claude-agent-acp"),
        ("codex", "codex-acp"),
        ("pi", "pi-acp"),
        ("oh", "openhands"),
        (" oracle ", "oracle"),
        ("acp/claude", "claude-agent-acp"),
        ("cmd: my-agent --acp", "cmd: my-agent --acp"),
    ],
)
def test_a_word_means_an_agent(word: str, name: str) -> None:
    known = AgentRegistry()
    assert known.get(word).name == name
    assert known.get(word) is known.get(word)


def test_an_alias_and_its_name_are_the_same_agent() -> None:
    known = AgentRegistry()
    assert known.get("claude") is known.get("claude-agent-acp")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("gemmini", "Unknown agent: 'gemmini'. Did you mean: 'gemini'?"),
        ("clude", "Unknown agent: 'clude'. Did you mean: 'claude'?"),
        ("zzz", "Unknown agent: 'zzz'. Available: claude, claude-agent-acp, codex, codex-acp, copilot, gemini, grok, "),
        ("acp/zzz", "Unknown agent: 'zzz'. Available: "),
        ("cmd: ", "'cmd:' names no command"),
    ],
)
def test_an_unknown_word_is_answered_with_the_nearest(word: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        AgentRegistry().get(word)
    assert str(error.value).startswith(message)


def test_a_command_is_run_as_it_is_with_nothing_to_install() -> None:
    agent = AgentRegistry().get("cmd: my-agent --acp")
    assert isinstance(agent, AcpAgent)
    assert agent.manifest.launch == ("my-agent", "--acp")
    assert agent.installation.spec is None


def test_naming_oracle_reads_no_manifest_and_loads_nothing_for_it(folder: Path) -> None:
    (folder / "broken.toml").write_text("name = ")
    code = (
        "import sys; from pytest_benchflow.agents import AgentRegistry; AgentRegistry().get('oracle');"
        "print([m for m in sys.modules if m in ('tomli', 'tomllib') or m.endswith(('.manifest', '.acp_agent'))])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_naming_one_agent_reads_one_manifest() -> None:
    code = (
        "import pytest_benchflow.agents.manifest_file as f; read = f.read_manifest\n"
        "def counted(path): print(path.name); return read(path)\n"
        "f.read_manifest = counted\n"
        "from pytest_benchflow.agents import AgentRegistry; AgentRegistry().get('codex')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["codex-acp.toml"]


def test_a_directory_adds_agents(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "manifest.toml").write_text(MINE)
    known = AgentRegistry()
    assert "mine" in known.names()
    assert known.get("my") is known.get("mine")
    with pytest.raises(UsageError, match="Did you mean: 'mine'"):
        known.get("mime")


def test_a_directory_may_replace_a_built_in_agent(folder: Path) -> None:
    (folder / "claude.toml").write_text('name = "claude-agent-acp"\nlaunch = ["mine"]\n')
    assert AgentRegistry().manifest("claude").launch == ("mine",)


@pytest.mark.parametrize("word", ["my", "claude", "gemini", "oracle"])
def test_a_word_cannot_mean_two_agents(folder: Path, word: str) -> None:
    (folder / "a.toml").write_text(MINE)
    (folder / "b.toml").write_text(f'name = "other"\naliases = ["{word}"]\nlaunch = ["x"]\n')
    with pytest.raises(UsageError, match=rf"b\.toml: '{word}' is taken by .*; choose another name"):
        AgentRegistry().get("mine")


def test_a_directory_that_is_none_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BF_AGENTS_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"BF_AGENTS_DIR: .*nowhere is not a directory"):
        AgentRegistry().get("gemini")


def test_a_manifest_is_chosen_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(MINE)
    assert AgentRegistry().get(str(path)).name == "mine"


def test_a_manifest_is_registered_like_an_agent() -> None:
    known = AgentRegistry()
    known.register(parse_manifest({"name": "mine", "aliases": ["my"], "launch": ["x"]}, "x"))
    assert known.get("my") is known.get("mine")


@pytest.mark.parametrize("word", ["oracle", "gemini", "claude", "mine"])
def test_a_name_is_taken_once_unless_it_is_to_be_replaced(word: str) -> None:
    known = AgentRegistry()
    known.register(parse_manifest({"name": "mine", "launch": ["x"]}, "x"))
    again = parse_manifest({"name": word, "launch": ["y"]}, "x")
    with pytest.raises(UsageError, match=f"agent '{word}' is registered twice; give one of them another name"):
        known.register(again)
    known.register(again, replace=True)
    assert known.manifest(word) is again


def test_installed_packages_offer_agents_and_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", f"{__name__}:offered", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: EntryPoints([point]).select(group=group))
    monkeypatch.setattr(EntryPoint, "load", lambda self: offered)
    known = AgentRegistry()
    known.load_entry_points()
    assert known.get("offered").name == "offered"


def offered() -> object:
    return parse_manifest({"name": "offered", "launch": ["x"]}, "x")


def test_an_agent_registered_from_python_is_known_to_every_registry() -> None:
    before = AgentRegistry()
    register_agent("my-agent", install_cmd="pip install my-agent", launch_cmd="my-agent --acp", requires_env=["KEY"])
    for known in (before, AgentRegistry()):
        assert known.get("my-agent").name == "my-agent"
    manifest = get_agent("my-agent")
    assert manifest.install.command == "pip install my-agent"
    assert manifest.requires_env == ("KEY",)
    assert "my-agent" in [one.name for one in list_agents()]


def test_an_agent_registered_from_python_needs_a_command() -> None:
    with pytest.raises(UsageError, match=r"register_agent\('x'\) has no launch_cmd"):
        register_agent("x")
    with pytest.raises(UsageError, match=r"register_agent\('a b'\): 'a b' cannot name an agent"):
        register_agent("a b", launch_cmd="x")


def test_an_agent_without_a_manifest_has_none() -> None:
    with pytest.raises(UsageError, match="agent 'oracle' has no manifest"):
        get_agent("oracle")
