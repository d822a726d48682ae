"""`acpx/NAME`: the same agents behind another client."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from agent_world import Bundled, Store, World, context_of

from pytest_benchflow.agents import (
    AgentContext,
    AgentOutcome,
    AgentRegistry,
    AgentRequest,
    ModelAccess,
    acp_agent,
    parse_manifest,
)
from pytest_benchflow.agents.acpx import AcpxAgent, _ansi_quoted, behind_acpx
from pytest_benchflow.agents.registry import BUILT_IN, built_in_manifest
from pytest_benchflow.core.errors import HandshakeError, UsageError
from pytest_benchflow.core.types import Event

MANIFEST = {
    "name": "mine",
    "version": "1.0",
    "launch": ["mine", "--acp"],
    "mode": "yolo",
    "effort": {"option": "thinking"},
    "install": {"node": "22.1.0", "npm": ["mine@1.0"]},
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(acp_agent, "RETRY_DELAYS", ())
    (tmp_path / "box/home").mkdir(parents=True)
    program = tmp_path / "prefix/bin/acpx"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {Path(__file__).with_name("fake_acpx.py")} "$@"\n')
    program.chmod(0o755)
    return World(tmp_path / "box")


@pytest.fixture
def agent(tmp_path: Path) -> AcpxAgent:
    store = Store(Bundled(str(tmp_path / "prefix")))
    return AcpxAgent(parse_manifest(MANIFEST, "x"), store)  # type: ignore[arg-type]


@pytest.fixture
def context(
    agent: AcpxAgent, world: World, make_task: Callable[..., Path], tmp_path: Path
) -> Callable[..., AgentContext]:
    def make(events: list[Event], effort: str | None = None, toml: str = "", **env: str) -> AgentContext:
        access = ModelAccess(env={"RECORD": str(tmp_path / "record"), **env})
        return context_of(world, make_task(toml=toml), access, AgentRequest(None, effort), events)

    return make


def commands(tmp_path: Path) -> list[list[str]]:
    """Return what acpx was asked to do, without what is always the same."""
    lines = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    return [line[line.index("--agent") + 2 :] for line in lines]


async def test_a_session_is_held_by_commands_of_acpx(
    agent: AcpxAgent, world: World, context: Callable[..., AgentContext], tmp_path: Path
) -> None:
    events: list[Event] = []
    ready = context(events, effort="high")
    await agent.install(ready)
    session = await agent.connect(ready)
    text = 'it\'s "two"\nlines\t$HOME `x` \\ ünï 😀'
    done = await session.prompt(text, timeout_sec=30)
    again = await session.prompt("again", timeout_sec=30)
    await session.close()
    assert [one.outcome for one in (done, again)] == [AgentOutcome.COMPLETED, AgentOutcome.COMPLETED]
    assert (done.message, done.stop_reason) == ("hello", "end_turn")
    assert commands(tmp_path) == [
        ["sessions", "new", "--name", "benchflow"],
        ["set-mode", "yolo", "-s", "benchflow"],
        ["set", "thinking", "high", "-s", "benchflow"],
        ["prompt", "-s", "benchflow", "-f", "-"],
        ["prompt", "-s", "benchflow", "-f", "-"],
    ]
    assert (tmp_path / "record.prompt").read_text() == "again\n"
    first = json.loads((tmp_path / "record").read_text().splitlines()[0])
    assert first[first.index("--agent") + 1] == f"{tmp_path}/prefix/bin/mine --acp"
    assert {"--approve-all", "--no-fs", "--no-terminal"} <= {*first}
    assert "earlier turn" not in json.dumps(events)
    assert not any(child.alive for child in world.children)


@pytest.mark.parametrize("text", ["x", 'it\'s "two"\nlines\t$HOME `x` \\ ünï 😀\x01\x7f', "'", "\\", "\n\n", "a\\'b"])
async def test_a_prompt_arrives_as_it_was_given(
    agent: AcpxAgent, context: Callable[..., AgentContext], tmp_path: Path, text: str
) -> None:
    ready = context([])
    await agent.install(ready)
    session = await agent.connect(ready)
    await session.prompt(text, timeout_sec=30)
    await session.close()
    assert (tmp_path / "record.prompt").read_text() == f"{text}\n"
    assert "\n" not in _ansi_quoted(text)


async def test_an_agent_that_dies_is_a_failed_turn(agent: AcpxAgent, context: Callable[..., AgentContext]) -> None:
    ready = context([])
    await agent.install(ready)
    session = await agent.connect(ready)
    done = await session.prompt("die", timeout_sec=30)
    await session.close()
    assert done.outcome is not AgentOutcome.COMPLETED
    assert "acpx prompt ended with status 1: agent disconnected" in str(done.detail)


async def test_a_prompt_over_time_is_cancelled_and_everything_killed(
    agent: AcpxAgent, world: World, context: Callable[..., AgentContext], tmp_path: Path
) -> None:
    ready = context([])
    await agent.install(ready)
    session = await agent.connect(ready)
    done = await session.prompt("wait", timeout_sec=0.5)
    await session.close()
    assert done.outcome is AgentOutcome.TIMED_OUT
    assert commands(tmp_path)[-1] == ["cancel", "-s", "benchflow"]
    assert not any(child.alive for child in world.children)


async def test_a_session_that_cannot_begin_is_an_error(
    agent: AcpxAgent, world: World, context: Callable[..., AgentContext]
) -> None:
    ready = context([], NEW_FAILS="4")
    await agent.install(ready)
    with pytest.raises(HandshakeError, match="acpx sessions new ended with status 4"):
        await agent.connect(ready)
    assert not any(child.alive for child in world.children)


async def test_an_effort_that_is_refused_is_an_error(agent: AcpxAgent, context: Callable[..., AgentContext]) -> None:
    ready = context([], effort="silly")
    await agent.install(ready)
    with pytest.raises(HandshakeError, match="acpx set thinking ended with status 1: no such value"):
        await agent.connect(ready)


async def test_the_servers_of_a_task_are_in_a_file(
    agent: AcpxAgent, world: World, context: Callable[..., AgentContext], tmp_path: Path
) -> None:
    toml = '[[environment.mcp_servers]]\nname = "web"\nurl = "http://127.0.0.1:1/sse"\n'
    ready = context([], toml=toml)
    await agent.install(ready)
    session = await agent.connect(ready)
    await session.close()
    path = world.root / "home/.acpx/servers.json"
    assert json.loads(path.read_text()) == {
        "mcpServers": [{"type": "sse", "name": "web", "url": "http://127.0.0.1:1/sse", "headers": []}]
    }
    first = json.loads((tmp_path / "record").read_text().splitlines()[0])
    assert first[first.index("--mcp-config") + 1] == str(path)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_agent_can_be_behind_acpx(name: str) -> None:
    own, behind = built_in_manifest(name), behind_acpx(built_in_manifest(name))
    assert behind.name == f"acpx/{name}"
    assert behind.install.npm == (*own.install.npm, "acpx@0.19.1")
    assert behind.programs == (*own.programs, "acpx")
    assert int(str(behind.install.node).split(".")[0]) >= 22
    assert (behind.env, behind.files, behind.credentials) == (own.env, own.files, own.credentials)
    assert AgentRegistry().get(f"acpx/{name}").name == f"acpx/{name}"


def test_a_program_of_the_image_stays_one_behind_acpx() -> None:
    raw = replace(parse_manifest({"name": "raw", "launch": ["my-agent"]}, "x"))
    assert behind_acpx(raw).programs == ("acpx",)
    old = parse_manifest({**MANIFEST, "install": {"node": "20.1.0", "npm": ["mine@1.0"]}}, "x")
    assert behind_acpx(old).install.node == "22.23.3"


def test_an_alias_and_its_name_are_the_same_behind_acpx() -> None:
    known = AgentRegistry()
    assert known.get("acpx/claude") is known.get("acpx/claude-agent-acp")
    for word in ("acpx/oracle", "acpx/acpx/gemini"):
        with pytest.raises(UsageError, match="does not speak ACP; acpx drives only agents that do"):
            known.get(word)
    with pytest.raises(UsageError, match=r"Unknown agent: 'gemmini'\. Did you mean: 'gemini'"):
        known.get("acpx/gemmini")
