"""Compose tasks: main and its sidecars come up together, go together, and take turns where they would collide."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_benchflow.core.errors import BenchflowError, BuildError, SandboxError
from pytest_benchflow.core.network import NO_NETWORK
from pytest_benchflow.sandboxes import Limits, Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.docker.backend import DockerBackend

pytestmark = pytest.mark.compose
Start = Callable[..., "asyncio.Future[Sandbox]"]
Context = Callable[..., Path]
MAIN = "FROM debian:bookworm-slim\nWORKDIR /work\nENV FROM_IMAGE=yes\n"
WEB = """
  web:
    image: debian:bookworm-slim
    command: [bash, -c, "echo hello >/tmp/index.html; exec python3 -m http.server -d /tmp 8000"]
    healthcheck:
      test: [CMD, python3, -c, "import urllib.request as r; r.urlopen('http://localhost:8000/')"]
      interval: 1s
      retries: 30
"""


@pytest.fixture
def _health_checks(is_podman: bool) -> None:
    if is_podman and not Path("/run/systemd/private").exists():
        pytest.skip("Podman has systemd run its health checks, and there is none")


def objects(project: str) -> list[str]:
    """List what the engine has of a project."""
    label = f"label=com.docker.compose.project={project.lower()}"
    commands = (["ps", "-aq"], ["network", "ls", "-q"], ["volume", "ls", "-q"])
    return [
        word
        for words in commands
        for word in subprocess.check_output(["docker", *words, "--filter", label], text=True).split()
    ]


def inspect(name: str, kind: str = "container") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(subprocess.check_output(["docker", kind, "inspect", name]))[0]
    return found


@pytest.mark.usefixtures("_health_checks")
async def test_main_reaches_its_healthy_sidecar_and_all_of_it_goes(start: Start, context: Context) -> None:
    compose = f"services:\n  main:\n    volumes: [data:/data]\n{WEB}volumes:\n  data: {{}}\n"
    sandbox = await start(environment_dir=written(context(MAIN), compose), env={"FROM_SPEC": "a$b"})
    done = await sandbox.exec("pwd; echo $FROM_IMAGE $FROM_SPEC; curl -sS http://web:8000/; test -d /data && id -u")
    assert (done.stdout, done.stderr) == ("/work\nyes a$b\nhello\n0\n", "")
    assert objects(sandbox.id)
    await sandbox.stop()
    assert not objects(sandbox.id)


async def test_main_runs_its_command_and_what_waits_for_its_health_comes_after(start: Start, context: Context) -> None:
    compose = """services:
  main:
    command: [bash, -c, "echo $$0 >/said; sleep 2; touch /shared/up; exec tail -f /dev/null"]
    healthcheck: {test: "test -e /shared/up", interval: 1s, retries: 30}
    volumes: [data:/shared]
  after:
    image: debian:bookworm-slim
    command: [bash, -c, "ls /shared >/shared/seen; exec sleep infinity"]
    depends_on: {main: {condition: service_healthy}}
    volumes: [data:/shared]
volumes:
  data: {}
"""
    sandbox = await start(environment_dir=written(context(MAIN), compose))
    done = await sandbox.exec("cat /said; until [ -s /shared/seen ]; do sleep 0.1; done; cat /shared/seen; pgrep tail")
    assert done.stdout.splitlines()[:3] == ["bash", "seen", "up"]
    assert done.return_code == 0


@pytest.mark.parametrize(("last", "said"), [("exit 3", "status 3: no"), ("echo over", "status 0: over")])
async def test_a_command_of_main_that_ends_is_told(start: Start, context: Context, last: str, said: str) -> None:
    compose = f'services:\n  main:\n    command: [bash, -c, "echo no >&2; {last}"]\n'
    with pytest.raises(SandboxError, match=f"command of service main ended with {said}; let it live on"):
        await start(environment_dir=written(context(MAIN), compose))


@pytest.mark.usefixtures("_health_checks")
async def test_without_network_the_sidecar_stays_within_reach(start: Start, context: Context) -> None:
    sandbox = await start(environment_dir=written(context(MAIN), f"services:{WEB}"), network=NO_NETWORK)
    assert (await sandbox.exec("curl -sS http://web:8000/")).stdout == "hello\n"
    assert inspect(f"{sandbox.id.lower()}_default", "network")["Internal"]


async def test_variables_of_the_format_are_offered(start: Start, context: Context) -> None:
    text = (
        "services:\n  main:\n    build: {context: '${CONTEXT_DIR}'}\n    image: ${MAIN_IMAGE_NAME}\n"
        "    environment:\n      {CPUS: '${CPUS}', MEMORY: '${MEMORY}',\n"
        "       TESTS: '${TEST_DIR}', LOGS: '${ENV_AGENT_LOGS_PATH}'}\n"
    )
    sandbox = await start(environment_dir=written(context(MAIN), text))
    assert (await sandbox.exec("echo $CPUS $MEMORY $TESTS $LOGS $FROM_IMAGE")).stdout == "0 0 /tests /logs/agent yes\n"


@pytest.mark.parametrize("limits", [Limits(), Limits(cpus=1, memory_mb=100)])
async def test_a_file_with_limits_of_its_own_gets_those_of_the_task(
    start: Start, context: Context, limits: Limits
) -> None:
    text = (
        "services:\n  main:\n    build: {context: '${CONTEXT_DIR}'}\n    image: ${MAIN_IMAGE_NAME}\n"
        "    deploy: {resources: {limits: {cpus: '${CPUS}', memory: '${MEMORY}'}}}\n"
    )
    sandbox = await start(environment_dir=written(context(MAIN), text), limits=limits)
    (container, *_) = objects(sandbox.id)
    host = inspect(container)["HostConfig"]
    memory = (limits.memory_mb or 0) << 20
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (int(limits.cpus or 0) * 10**9, memory, memory)
    assert host["PidsLimit"] > 0


async def test_files_reach_a_file_system_in_memory(start: Start, context: Context, tmp_path: Path) -> None:
    sandbox = await start(environment_dir=written(context(MAIN), "services:\n  main:\n    tmpfs: [/memory]\n"))
    for size in (1_000, 9_000_000):  # they go different ways
        (tmp_path / "file").write_bytes(b"x" * size)
        await sandbox.upload_file(tmp_path / "file", "/memory/deep/file")
        assert (await sandbox.exec("wc -c </memory/deep/file")).stdout == f"{size}\n"
        await sandbox.download_file("/memory/deep/file", tmp_path / "back")
        assert (tmp_path / "back").stat().st_size == size


async def test_full_file_system_is_said(start: Start, context: Context, tmp_path: Path) -> None:
    text = "services:\n  main:\n    tmpfs: ['/memory:size=64k']\n"
    sandbox = await start(environment_dir=written(context(MAIN), text))
    for size in (300_000, 9_000_000):
        (tmp_path / "file").write_bytes(b"x" * size)
        with pytest.raises(SandboxError, match=r"cannot write /memory in sandbox test: .*No space left on device"):
            await sandbox.upload_file(tmp_path / "file", "/memory/file")
    assert (await sandbox.exec("echo on")).stdout == "on\n"


@pytest.mark.usefixtures("_health_checks")
async def test_same_project_runs_several_times_at_once(start: Start, context: Context) -> None:
    directory = written(context(MAIN), f"services:{WEB}")
    sandboxes = await asyncio.gather(*(start(environment_dir=directory, name=f"n{n}") for n in range(2)))
    answers = await asyncio.gather(*(sandbox.exec("curl -sS http://web:8000/") for sandbox in sandboxes))
    assert [answer.stdout for answer in answers] == ["hello\n"] * 2


async def test_projects_that_want_the_same_name_take_turns(backend: DockerBackend, context: Context) -> None:
    text = f"services:\n  main:\n    container_name: bf-only-one-{os.getpid()}\n"
    directory = written(context(MAIN), text)
    running, most = 0, 0

    async def one() -> None:
        nonlocal running, most
        sandbox = backend.create(SandboxSpec("turn", environment_dir=directory))
        await sandbox.start()
        running += 1
        most = max(most, running)
        await sandbox.exec("sleep 0.5")
        running -= 1
        await sandbox.stop()

    await asyncio.gather(one(), one())
    assert most == 1


@pytest.mark.usefixtures("_health_checks")
async def test_sidecar_that_never_becomes_healthy_is_an_error_and_leaves_nothing(
    backend: DockerBackend, context: Context
) -> None:
    text = (
        "services:\n  web:\n    image: debian:bookworm-slim\n    command: [bash, -c, 'echo broken inside; sleep 600']\n"
        "    healthcheck: {test: [CMD, 'false'], interval: 1s, retries: 1}\n"
    )
    sandbox = backend.create(SandboxSpec("sick", environment_dir=written(context(MAIN), text)))
    with pytest.raises(SandboxError, match=r"docker-compose\.yaml: the services are not up: .*unhealthy") as caught:
        await sandbox.start()
    assert "broken inside" in str(caught.value)
    assert not objects(sandbox.id)


async def test_services_that_are_too_slow_leave_nothing(backend: DockerBackend, context: Context) -> None:
    text = (
        "services:\n  web:\n    image: debian:bookworm-slim\n    command: [sleep, '600']\n"
        "    healthcheck: {test: [CMD, 'false'], interval: 1s, retries: 600}\n"
    )
    spec = SandboxSpec("slow", environment_dir=written(context(MAIN), text), build_timeout_sec=2)
    sandbox = backend.create(spec)
    with pytest.raises(SandboxError, match="not up within 2 s"):
        await sandbox.start()
    assert not objects(sandbox.id)


async def test_broken_compose_file_is_named(start: Start, context: Context) -> None:
    with pytest.raises(BenchflowError, match=r"docker-compose\.yaml"):
        await start(environment_dir=written(context(MAIN), "services:\n  main:\n    no_such_key: 1\n"))


async def test_service_that_cannot_be_built_is_named(start: Start, context: Context) -> None:
    directory = written(context(MAIN), "services:\n  web:\n    build: {context: ./web}\n")
    (directory / "web").mkdir()
    (directory / "web" / "Dockerfile").write_text("FROM debian:bookworm-slim\nRUN exit 9\n")
    with pytest.raises(BuildError, match="service web could not be built"):
        await start(environment_dir=directory)


@pytest.mark.usefixtures("_health_checks")
async def test_project_goes_when_its_runner_is_killed(context: Context) -> None:
    directory = written(context(MAIN), f"services:{WEB}")
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from pytest_benchflow.sandboxes import SandboxSpec\n"
        "from pytest_benchflow.sandboxes.docker import DockerBackend\n"
        "async def main():\n"
        "    backend = DockerBackend()\n"
        "    await backend.preflight()\n"
        "    sandbox = backend.create(SandboxSpec('killed', environment_dir=Path(sys.argv[1])))\n"
        "    await sandbox.start()\n"
        "    print(sandbox.id, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    runner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(directory), stdout=asyncio.subprocess.PIPE
    )
    assert runner.stdout is not None
    async with asyncio.timeout(60):
        project = (await runner.stdout.readline()).decode().strip()
    assert objects(project)
    # A compose command that outlives the runner would go on to start services.
    command = await asyncio.create_subprocess_exec("sh", "-c", "sleep 60; :", "compose", "--project-name", project)
    runner.send_signal(signal.SIGKILL)
    await runner.wait()
    async with asyncio.timeout(15):
        assert await command.wait() == -signal.SIGKILL
    for _ in range(150):
        if not objects(project):
            return
        await asyncio.sleep(0.1)
    pytest.fail("the project outlived its runner")


def written(directory: Path, compose: str) -> Path:
    (directory / "docker-compose.yaml").write_text(compose)
    return directory
