"""An agent of a manifest at work: its files, its process, its session, its log, its end."""

from __future__ import annotations

import json
import re
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from agent_world import Bundled, Store, World, context_of

from pytest_benchflow.agents import (
    AcpAgent,
    AgentContext,
    AgentOutcome,
    AgentRequest,
    ModelAccess,
    acp_agent,
    missing_access,
    parse_manifest,
)
from pytest_benchflow.core.errors import HandshakeError, InstallError, ProviderError, UsageError
from pytest_benchflow.core.types import Event
from pytest_benchflow.providers import HomeFile
from pytest_benchflow.tasks import load_task

KEY = "sk-very-secret-0123"
Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_agent, "RETRY_DELAYS", (0.0, 0.0, 0.0))


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "box" / "home").mkdir(parents=True)
    return World(tmp_path / "box")


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "starts"


@pytest.fixture
def agent(record: Path) -> AcpAgent:
    """An agent whose program writes down how it was started."""
    script = Path(__file__).with_name("small_agent.py")
    return AcpAgent(
        parse_manifest(
            {
                "name": "mine-acp",
                "launch": [sys.executable, str(script), str(record), "--effort={effort}", "--model={model}"],
                "provider": "openai",
                "key_env": "MINE_KEY",
                "model": {"by": "env"},
                "effort": {"by": "flag"},
                "protocols": {"openai-completions": {"auth_method": "mine-key"}},
                "env": {"MINE_MODEL": "{model}", "MINE_URL": "{base_url}"},
                "files": [{"path": ".mine/config.json", "format": "json", "content": {"url": "{base_url}"}}],
            },
            "mine.toml",
        )
    )


@pytest.fixture
def context(
    agent: AcpAgent, world: World, make_task: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., AgentContext]:
    monkeypatch.chdir(tmp_path)

    def make(request: AgentRequest | None = None, events: list[Event] | None = None, toml: str = "") -> AgentContext:
        asked = request or AgentRequest("mock-model", env={"OPENAI_API_KEY": KEY})
        task = make_task(toml=toml)
        access = agent.access(load_task(task), asked)
        return context_of(world, task, access, asked, [] if events is None else events)

    return make


def starts(record: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in record.read_text().splitlines()]


def wire(record: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(f"{record}.wire").read_text().splitlines()]


async def test_a_session_runs_with_what_the_manifest_says(
    agent: AcpAgent, world: World, context: Callable[..., AgentContext], record: Path
) -> None:
    events: list[Event] = []
    asked = AgentRequest("openai/mock-model", "high", {"OPENAI_API_KEY": KEY, "EXTRA": "1"})
    ready = context(asked, events)
    await agent.install(ready)
    session = await agent.connect(ready)
    try:
        done = await session.prompt("hi", timeout_sec=30)
    finally:
        await session.close()
        await session.close()
    assert (done.outcome, done.message) == (AgentOutcome.COMPLETED, "hello")
    assert (session.agent_name, session.agent_version) == ("small", "1.2")
    (start,) = starts(record)
    assert start["argv"] == ["--effort=high", "--model=mock-model"]
    assert start["cwd"] == world.workdir
    env = start["env"]
    assert isinstance(env, dict)
    assert env["HOME"] == str(world.root / "home")
    assert (env["MINE_KEY"], env["MINE_MODEL"], env["EXTRA"]) == (KEY, "mock-model", "1")
    assert env["MINE_URL"] == "https://api.openai.com/v1"
    assert [m.get("method") for m in wire(record)] == ["initialize", "authenticate", "session/new", "session/prompt"]
    assert not any(child.alive for child in world.children)
    assert events


async def test_no_secret_is_in_an_argument_or_a_command(
    agent: AcpAgent, world: World, context: Callable[..., AgentContext]
) -> None:
    ready = context()
    ready = replace(ready, access=replace(ready.access, files=(HomeFile(".mine/key", KEY.encode()),)))
    await agent.install(ready)
    session = await agent.connect(ready)
    await session.close()
    assert (world.root / "home/.mine/key").read_text() == KEY
    assert KEY not in repr([world.argvs, world.commands])


async def test_files_are_for_the_agents_user_alone(
    agent: AcpAgent, world: World, context: Callable[..., AgentContext]
) -> None:
    await agent.install(context())
    path = world.root / "home/.mine/config.json"
    assert json.loads(path.read_text()) == {"url": "https://api.openai.com/v1"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {user for _, user in world.commands} == {"agent"}


async def test_a_link_in_the_way_is_replaced_and_not_followed(
    agent: AcpAgent, world: World, context: Callable[..., AgentContext], tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (world.root / "home/.mine").mkdir()
    (world.root / "home/.mine/config.json").symlink_to(victim)
    await agent.install(context())
    assert victim.read_text() == "mine"
    assert not (world.root / "home/.mine/config.json").is_symlink()


async def test_a_file_that_cannot_be_written_says_where_and_not_what(
    agent: AcpAgent, world: World, context: Callable[..., AgentContext]
) -> None:
    (world.root / "home/.mine").write_text("a file")
    ready = context()
    ready = replace(ready, access=replace(ready.access, files=(HomeFile(".mine/key", KEY.encode()),)))
    with pytest.raises(InstallError, match=r"Agent mine-acp install failed: could not write .*/\.mine/key: ") as error:
        await agent.install(ready)
    assert KEY not in str(error.value)


async def test_a_variable_holds_the_path_of_a_file(
    agent: AcpAgent, world: World, context: Callable[..., AgentContext], record: Path
) -> None:
    ready = context()
    file = HomeFile(".gcloud/adc.json", b"{}", "GOOGLE_APPLICATION_CREDENTIALS")
    ready = replace(ready, access=replace(ready.access, files=(file,)))
    session = await agent.connect(ready)
    await session.close()
    env = starts(record)[0]["env"]
    assert isinstance(env, dict)
    assert env["GOOGLE_APPLICATION_CREDENTIALS"] == str(world.root / "home/.gcloud/adc.json")


async def test_what_it_prints_is_in_its_log_without_secrets(
    agent: AcpAgent, world: World, context: Callable[..., AgentContext]
) -> None:
    session = await agent.connect(context())
    await session.prompt("hi", timeout_sec=30)
    await session.close()
    assert (world.root / "logs/mine_acp.txt").read_text() == "starting with [secret]\n"


@pytest.mark.parametrize("deaths", [1, 3])
async def test_a_connection_lost_in_the_handshake_is_tried_again(
    agent: AcpAgent, world: World, context: Callable[..., AgentContext], record: Path, deaths: int
) -> None:
    asked = AgentRequest("m", env={"OPENAI_API_KEY": KEY, "DIES_FIRST": str(deaths)})
    session = await agent.connect(context(asked))
    await session.close()
    assert len(starts(record)) == deaths + 1
    assert (world.root / "logs/mine_acp.txt").read_text().count("trying again in 0 s") == deaths


async def test_after_three_more_attempts_it_is_given_up(
    agent: AcpAgent, world: World, context: Callable[..., AgentContext], record: Path
) -> None:
    asked = AgentRequest("m", env={"OPENAI_API_KEY": KEY, "DIES_FIRST": "99"})
    with pytest.raises(HandshakeError, match="not in the mood"):
        await agent.connect(context(asked))
    assert len(starts(record)) == 4
    assert not any(child.alive for child in world.children)


async def test_an_agent_that_says_nothing_is_not_asked_again(
    world: World, context: Callable[..., AgentContext]
) -> None:
    silent = {"name": "silent", "launch": ["sleep", "60"], "handshake_timeout_sec": 0.2}
    with pytest.raises(HandshakeError, match="did not answer initialize"):
        await AcpAgent(parse_manifest(silent, "x")).connect(context())
    assert len(world.argvs) == 1
    assert not any(child.alive for child in world.children)


async def test_a_program_that_is_not_there_is_not_looked_for_again(
    world: World, context: Callable[..., AgentContext]
) -> None:
    missing = {"name": "missing", "launch": ["bash", "-c", "exec /no/such/program"]}
    with pytest.raises(HandshakeError, match="exited with status 127"):
        await AcpAgent(parse_manifest(missing, "x")).connect(context())
    assert len(world.argvs) == 1


@pytest.mark.parametrize(
    ("said", "hint", "told"),
    [
        ("401 Unauthorized", "unset it", "unset it"),
        ("Incorrect: invalid x-api-key", "unset it", "unset it"),
        ("authentication_error", "unset it", "unset it"),
        ("500 overloaded", "unset it", "the provider has trouble: try again later"),
        ("401 Unauthorized", None, "check the API key or login that it uses"),
    ],
)
async def test_a_refused_key_that_hides_a_login_is_told(
    agent: AcpAgent, context: Callable[..., AgentContext], said: str, hint: str | None, told: str
) -> None:
    ready = context(AgentRequest("mock-model", env={"OPENAI_API_KEY": KEY, "REFUSES": said}))
    session = await agent.connect(replace(ready, access=replace(ready.access, if_refused=hint)))
    with pytest.raises(ProviderError) as error:
        await session.prompt("hi", timeout_sec=30)
    await session.close()
    assert said in error.value.message
    assert error.value.advice == told


async def test_a_model_that_is_not_the_one_asked_for_is_an_error(
    agent: AcpAgent, world: World, context: Callable[..., AgentContext]
) -> None:
    asked = AgentRequest("mock-model", env={"OPENAI_API_KEY": KEY, "MINE_MODEL": "another"})
    with pytest.raises(UsageError, match="another instead of mock-model"):
        await agent.connect(context(asked))
    assert not any(child.alive for child in world.children)


async def test_packages_come_as_a_bundle_and_their_programs_are_called_by_path(
    world: World, context: Callable[..., AgentContext], tmp_path: Path
) -> None:
    program = tmp_path / "prefix/bin/mine"
    program.parent.mkdir(parents=True)
    script, log = Path(__file__).with_name("small_agent.py"), tmp_path / "starts"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {script} {log} "$@"\n')
    program.chmod(0o755)
    manifest = parse_manifest(
        {"name": "mine", "version": "1.0", "launch": ["mine"], "install": {"node": "22.1.0", "npm": ["mine@1.0"]}}, "x"
    )
    store = Store(Bundled(str(tmp_path / "prefix")))
    agent = AcpAgent(manifest, store)  # type: ignore[arg-type]
    spec = agent.installation.spec
    assert spec is not None
    assert (spec.agent, spec.version, spec.npm, spec.programs) == ("mine", "1.0", ("mine@1.0",), ("mine",))
    assert await agent.prepare_on_host(tmp_path / "job") == (store.bundle.mounted,)
    assert await agent.prepare_on_host(tmp_path / "job") == (store.bundle.mounted,)
    ready = context()
    await agent.install(ready)
    await agent.install(ready)
    session = await agent.connect(replace(ready, access=ModelAccess()))
    await session.close()
    assert store.asked == [(spec, tmp_path / "job/install-stdout.txt")] * 2
    assert store.bundle.put == ["world"]
    assert world.argvs == [[str(program)]]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_command_installs_as_root_once_and_its_output_is_kept(
    world: World, context: Callable[..., AgentContext], tmp_path: Path, fails: bool
) -> None:
    command = f"echo one; echo {KEY} >&2; echo x >>{tmp_path}/runs; exit {int(fails)}"
    agent = AcpAgent(parse_manifest({"name": "mine", "launch": ["x"], "install": {"command": command}}, "x"))
    ready = context()
    if fails:
        with pytest.raises(InstallError, match=r"Agent mine install failed \(rc=1\): one"):
            await agent.install(ready)
    else:
        await agent.install(ready)
        await agent.install(ready)
    assert (tmp_path / "runs").read_text() == "x\n"
    assert world.commands[0][1] == 0
    log = (world.root / "logs/install-stdout.txt").read_text()
    assert log == "one\n[secret]\n"


async def test_a_companion_listens_before_the_agent_starts_and_ends_with_it(
    world: World, context: Callable[..., AgentContext], record: Path, tmp_path: Path
) -> None:
    companion = tmp_path / "companion.py"
    companion.write_text(
        "import os, socket, time\n"
        "print('port', os.environ['PORT'], flush=True)\n"
        "server = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n"
        "while True: server.accept()\n"
    )
    script = Path(__file__).with_name("small_agent.py")
    manifest = {
        "name": "pair",
        "launch": [sys.executable, str(script), str(record)],
        "companion": {
            "launch": [sys.executable, str(companion)],
            "env": {"PORT": "{port}", "TOKEN": "{token}", "WORKSPACE": "{cwd}"},
        },
    }
    session = await AcpAgent(parse_manifest(manifest, "x")).connect(context())
    assert [child.alive for child in world.children] == [True, True]
    await session.close()
    assert [child.alive for child in world.children] == [False, False]
    env = starts(record)[0]["env"]
    assert isinstance(env, dict)
    assert env["WORKSPACE"] == world.workdir
    assert len(env["TOKEN"]) > 20
    assert f"port {env['PORT']}\n" in (world.root / "logs/pair.txt").read_text()


@pytest.mark.parametrize(
    ("program", "message"),
    [("exit 3", "bash exited with status 3 before it listened"), ("sleep 60", "bash did not listen on port")],
)
async def test_a_companion_that_does_not_listen_is_an_error(
    world: World, context: Callable[..., AgentContext], program: str, message: str
) -> None:
    manifest = {
        "name": "pair",
        "launch": ["true"],
        "handshake_timeout_sec": 0.1,
        "companion": {"launch": ["bash", "-c", program], "ready_timeout_sec": 0.5},
    }
    with pytest.raises(HandshakeError, match=re.escape(message)):
        await AcpAgent(parse_manifest(manifest, "x")).connect(context())
    assert not any(child.alive for child in world.children)


async def test_the_servers_of_a_task_are_told_to_the_agent(
    agent: AcpAgent, context: Callable[..., AgentContext], record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_TOKEN", "server-secret-1")
    toml = """
    [[environment.mcp_servers]]
    name = "files"
    transport = "stdio"
    command = "serve"
    args = ["--x"]
    cwd = "/srv"
    env = { TOKEN = "${SERVER_TOKEN}" }
    [[environment.mcp_servers]]
    name = "web"
    transport = "streamable-http"
    url = "http://127.0.0.1:1/mcp"
    headers = { Authorization = "Bearer ${SERVER_TOKEN}" }
    """
    ready = context(toml=toml)
    assert {"server-secret-1", "Bearer server-secret-1"} <= ready.access.secrets
    session = await agent.connect(ready)
    await session.close()
    params = next(m["params"] for m in wire(record) if m.get("method") == "session/new")
    assert isinstance(params, dict)
    assert params["mcpServers"] == [
        {
            "name": "files",
            "command": "sh",
            "args": ["-c", 'cd "$0" && exec "$@"', "/srv", "serve", "--x"],
            "env": [{"name": "TOKEN", "value": "server-secret-1"}],
        },
        {
            "type": "http",
            "name": "web",
            "url": "http://127.0.0.1:1/mcp",
            "headers": [{"name": "Authorization", "value": "Bearer server-secret-1"}],
        },
    ]


def test_what_is_missing_can_be_asked_without_an_error(
    agent: AcpAgent, make_task: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    task = load_task(make_task())
    error = missing_access(agent, task, AgentRequest("m"))
    assert error is not None
    assert str(error).startswith("OPENAI_API_KEY required for model 'm' but not set.")
    (tmp_path / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    assert missing_access(agent, task, AgentRequest("m")) is None
