"""What a sandbox does not support is refused before anything starts, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.core.errors import CannotRunHere, Category, UnsupportedError, UsageError
from pytest_benchflow.rollout.checks import refuse_unsupported
from pytest_benchflow.sandboxes import Capabilities, Sandbox, SandboxSpec
from pytest_benchflow.tasks import load_task

EVERYTHING = Capabilities(
    no_network=True,
    allowlist=True,
    docker_image=True,
    compose=True,
    services=True,
    gpus=True,
    windows=True,
    users=True,
    snapshots=True,
)


@dataclass(frozen=True)
class Backend:
    """A kind of sandbox that can do nothing, or what it is told."""

    capabilities: Capabilities = field(default_factory=Capabilities)
    name: str = "tiny"

    async def preflight(self) -> None: ...

    def create(self, spec: SandboxSpec) -> Sandbox:
        raise NotImplementedError

    async def aclose(self) -> None: ...


def refusal(path: Path, backend: Backend) -> str:
    with pytest.raises(UnsupportedError) as caught:
        refuse_unsupported(load_task(path), backend)
    assert caught.value.category is Category.UNSUPPORTED
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("toml", "named", "able"),
    [
        ("[environment]\ngpus = 1", "[environment] gpus", True),
        ('[environment]\nnetwork_mode = "no-network"', '[environment] network_mode = "no-network"', True),
        (
            '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["x.example"]',
            '[environment] network_mode = "allowlist"',
            True,
        ),
        (
            '[environment]\ntpu = {type = "v4", topology = "2x2"}',
            "[environment] tpu",
            False,
        ),
        ('[environment]\ngpus = 1\ngpu_types = ["H100"]', "[environment] gpu_types", False),
        (
            '[[environment.setup_commands]]\ncommand = "true"\nhost_lock = "x"',
            "[[environment.setup_commands]] host_lock or capture_dir",
            False,
        ),
        ('[verifier.environment]\nos = "windows"', '[verifier.environment] os = "windows"', True),
        (
            '[[verifier.environment.setup_commands]]\ncommand = "true"\nuser = "bob"',
            "[[verifier.environment.setup_commands]] user",
            True,
        ),
        ("[verifier.environment]\ngpus = 2", "[verifier.environment] gpus", True),
        (
            '[verifier]\nenvironment_mode = "separate"\nnetwork_mode = "allowlist"\nallowed_hosts = ["x.example"]',
            '[verifier] network_mode = "allowlist"',
            True,
        ),
        (
            '[verifier]\nenvironment_mode = "separate"\nnetwork_mode = "no-network"',
            '[verifier] network_mode = "no-network"',
            True,
        ),
        ('[verifier.environment]\ndocker_image = "alpine:3"', "[verifier.environment] docker_image", True),
        ('[agent]\nuser = "bob"', "[agent] user", True),
        ("[verifier]\nuser = 1000", "[verifier] user", True),
        ('[[verifier.collect]]\ncommand = "true"\nuser = "bob"', "[[verifier.collect]] user", True),
        (
            '[[environment.setup_commands]]\ncommand = "true"\nuser = "bob"',
            "[[environment.setup_commands]] user",
            True,
        ),
        ('[agent]\nnetwork_mode = "no-network"', '[agent] network_mode = "no-network"', True),
        ('[verifier]\nnetwork_mode = "no-network"', '[verifier] network_mode = "no-network"', True),
        (
            '[environment]\nnetwork_mode = "denylist"\nblocked_urls = ["https://x.example/", "y.example/page"]',
            "[environment] blocked_urls with a path",
            False,
        ),
    ],
)
def test_a_key_is_refused_by_name_unless_the_sandbox_can(
    make_task: Callable[..., Path], toml: str, named: str, able: bool
) -> None:
    path = make_task(toml=toml)
    text = refusal(path, Backend())
    assert named in text
    assert "the tiny sandbox does not support" in text
    assert str(path / "task.toml") in text
    if able:
        refuse_unsupported(load_task(path), Backend(EVERYTHING))
    else:
        assert named in refusal(path, Backend(EVERYTHING))


def test_a_windows_task_cannot_run_here_by_design(make_task: Callable[..., Path]) -> None:
    path = make_task(
        toml='[environment]\nos = "windows"\n',
        files={"tests/test.bat": "exit 0", "solution/solve.bat": "exit 0"},
    )
    with pytest.raises(CannotRunHere, match=r'\[environment\] os = "windows".*tiny sandbox'):
        refuse_unsupported(load_task(path), Backend())
    refuse_unsupported(load_task(path), Backend(EVERYTHING))


def test_an_image_without_a_dockerfile_is_refused(make_task: Callable[..., Path]) -> None:
    path = make_task(toml='[environment]\ndocker_image = "alpine:3"\n')
    refuse_unsupported(load_task(path), Backend())
    (path / "environment/Dockerfile").unlink()
    assert "[environment] docker_image" in refusal(path, Backend())
    refuse_unsupported(load_task(path), Backend(EVERYTHING))


def test_an_environment_of_files_alone_is_refused_wherever_it_would_run(make_task: Callable[..., Path]) -> None:
    path = make_task(files={"environment/setup.sh": "true\n"})
    (path / "environment/Dockerfile").unlink()
    with pytest.raises(UsageError, match=r"environment/ has no Dockerfile and no docker-compose\.yaml; write one"):
        refuse_unsupported(load_task(path), Backend(EVERYTHING))


def test_sidecars_are_refused(make_task: Callable[..., Path]) -> None:
    path = make_task(files={"environment/docker-compose.yaml": "services: {main: {}, db: {image: postgres}}\n"})
    assert "environment/docker-compose.yaml" in refusal(path, Backend())
    refuse_unsupported(load_task(path), Backend(EVERYTHING))


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ('[[environment.setup_commands]]\ncommand = "true"\n', "[[environment.setup_commands]]"),
        ("[verifier]\n", "[verifier]"),
        ('[[artifacts]]\nsource = "/x"\n', "[[artifacts]]"),
        ('[[verifier.collect]]\ncommand = "true"\n', "[[verifier.collect]]"),
    ],
)
def test_another_service_than_main_is_refused_by_name_unless_the_sandbox_has_them(
    make_task: Callable[..., Path], toml: str, named: str
) -> None:
    files = {"environment/docker-compose.yaml": "services: {main: {}, db: {image: postgres}}\n"}
    path = make_task(toml=f'{toml}service = "db"\n', files=files)
    assert f'the tiny sandbox does not support {named} service = "db"' in refusal(
        path, Backend(Capabilities(compose=True))
    )
    refuse_unsupported(load_task(path), Backend(EVERYTHING))


def test_sidecars_of_a_verifier_are_refused(make_task: Callable[..., Path]) -> None:
    path = make_task(
        toml='[verifier]\nenvironment_mode = "separate"\n',
        files={"tests/docker-compose.yaml": "services: {main: {}, db: {image: postgres}}\n"},
    )
    assert "tests/docker-compose.yaml" in refusal(path, Backend())
    refuse_unsupported(load_task(path), Backend(EVERYTHING))


@pytest.mark.parametrize("user", ['"root"', "0", '"0"'])
def test_root_is_a_user_of_every_sandbox(make_task: Callable[..., Path], user: str) -> None:
    refuse_unsupported(load_task(make_task(toml=f"[agent]\nuser = {user}\n")), Backend())


def test_a_judge_needs_nothing_of_the_sandbox(make_task: Callable[..., Path]) -> None:
    path = make_task(toml='[verifier]\ntype = "llm-judge"\n', files={"tests/rubric.toml": "[[criteria]]\nname = 'x'\n"})
    refuse_unsupported(load_task(path), Backend())


@pytest.mark.parametrize(
    ("table", "agent", "asked"),
    [
        ("secrets = {token = 1}\nruntime_policy = {network = 1}\n", "oracle", "secrets, runtime_policy"),
        ("[benchflow.nudges]\nnudge_budget = 2\n[benchflow.teams.a]\n", "gemini", "nudges, teams"),
        (
            "environment = {manifest = 'office@prod'}\nsecrets = {token = 1}\n",
            "oracle",
            'environment asks for the environment "office@prod", secrets',
        ),
        ("[benchflow.nudges]\nnudge_budget = 2\n", "oracle", None),
        ("provenance = {by = 'me'}\n", "gemini", None),
    ],
)
def test_policies_that_nobody_would_keep_are_refused(
    make_task: Callable[..., Path], table: str, agent: str, asked: str | None
) -> None:
    task, agents = load_task(make_task(toml=f"[benchflow]\n{table}")), [AgentRegistry().get(agent)]
    if asked is None:
        refuse_unsupported(task, Backend(EVERYTHING), agents)
    else:
        with pytest.raises(UnsupportedError, match=rf"task.toml: \[benchflow\] {asked}: not supported here"):
            refuse_unsupported(task, Backend(EVERYTHING), agents)


def test_all_refused_keys_are_named_at_once(make_task: Callable[..., Path]) -> None:
    path = make_task(toml='[environment]\ngpus = 1\nnetwork_mode = "no-network"\n')
    text = refusal(path, Backend())
    assert "gpus" in text
    assert "no-network" in text


def test_the_advice_is_docker_where_only_docker_can(make_task: Callable[..., Path]) -> None:
    path = make_task(toml="[environment]\ngpus = 1\n")
    assert refusal(path, Backend()).endswith("use --bf-sandbox docker")


def test_an_ordinary_task_needs_nothing_special(make_task: Callable[..., Path]) -> None:
    refuse_unsupported(load_task(make_task()), Backend())
