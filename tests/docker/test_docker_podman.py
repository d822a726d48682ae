"""Podman through its Docker socket: a service of our own; BF_REQUIRE_PODMAN makes these tests mandatory."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from project import Project, wait_for

from pytest_benchflow.core.errors import BuildError, SandboxError
from pytest_benchflow.sandboxes import Limits, SandboxSpec
from pytest_benchflow.sandboxes.docker.backend import DockerBackend
from pytest_benchflow.sandboxes.docker.cleanup import DockerImages
from pytest_benchflow.sandboxes.docker.client import Address

pytestmark = pytest.mark.podman
IMAGE = "bf-test/busybox:1"
SPEC = SandboxSpec("podman", docker_image=IMAGE)


class Podman:
    """Runs Podman's service with images and containers of its own."""

    def __init__(self, directory: Path) -> None:
        self.socket = f"unix://{directory}/podman.sock"
        runtime = "crun" if shutil.which("crun") else "runc"
        self._words = ["podman", "--root", f"{directory}/root", "--runroot", f"{directory}/run"]
        self._words += ["--tmpdir", f"{directory}/tmp", "--runtime", runtime, "--cgroup-manager", "cgroupfs"]
        self._words += ["--events-backend", "file"]
        # Its own default may be more than this machine lets it give.
        files, processes = (min(resource.getrlimit(kind)[1], 4096) for kind in (7, 6))
        limits = f'["nofile={files}:{files}", "nproc={processes}:{processes}"]'
        (directory / "containers.conf").write_text(f"[containers]\ndefault_ulimits = {limits}\n")
        self._env = {**os.environ, "CONTAINERS_CONF": f"{directory}/containers.conf"}

    def run(self, *words: str, stdin: bytes | None = None) -> str:
        """Run a podman command and return its output."""
        done = subprocess.run([*self._words, *words], input=stdin, capture_output=True, check=True, env=self._env)
        return done.stdout.decode().strip()

    @contextlib.contextmanager
    def serving(self, log: Path) -> Iterator[None]:
        """Answer on the socket."""
        with log.open("wb") as stream:
            argv = [*self._words, "system", "service", "--time", "0", self.socket]
            # Where it runs it leaves a file for every container that ran out of memory.
            service = subprocess.Popen(
                argv, stdout=stream, stderr=stream, env=self._env, cwd=log.parent, start_new_session=True
            )
        try:
            deadline = time.monotonic() + 30
            while not os.path.exists(self.socket.removeprefix("unix://")):
                assert service.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.05)
            yield
        finally:
            service.terminate()
            service.wait(timeout=30)


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    # The path of a socket must be short.
    directory = Path(tempfile.mkdtemp(prefix="bfp"))
    podman = Podman(directory)
    try:
        saved = subprocess.run(["docker", "save", IMAGE], capture_output=True, check=True).stdout
        podman.run("load", stdin=saved)
        with podman.serving(directory / "log"):
            # Named as one that was pulled.
            tag = ["docker", "-H", podman.socket, "tag", f"localhost/{IMAGE}", IMAGE]
            subprocess.run(tag, check=True, capture_output=True)
            podman.run("untag", f"localhost/{IMAGE}", f"localhost/{IMAGE}")
            yield podman
    finally:
        subprocess.run(["umount", f"{directory}/root/overlay"], capture_output=True, check=False)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
async def backend(podman: Podman) -> AsyncIterator[DockerBackend]:
    backend = DockerBackend(address=Address(podman.socket), network="host")
    await backend.preflight()
    yield backend
    await backend.aclose()
    assert podman.run("ps", "--all", "--quiet") == ""


@pytest.fixture
def environment(tmp_path: Path) -> Callable[[str], Path]:
    """Write an environment directory with this Dockerfile."""

    def write(dockerfile: str) -> Path:
        directory = tmp_path / "environment"
        directory.mkdir()
        (directory / "Dockerfile").write_text(dockerfile)
        return directory

    return write


async def test_commands_programs_and_files(backend: DockerBackend, tmp_path: Path) -> None:
    sandbox = backend.create(SPEC)
    await sandbox.start()
    done = await sandbox.exec("pwd; cat; echo err >&2; exit 3", stdin=b"in", env={"A": "b"}, user=65534)
    assert (done.return_code, done.stdout, done.stderr) == (3, "/app\nin", "err\n")
    process = await sandbox.open_process(["sh", "-c", "cat; exit 4"])
    await process.write(b"x" * 1_000_000)
    await process.close_stdin()
    total = 0
    while data := await process.read():
        total += len(data)
    assert (total, await process.wait()) == (1_000_000, 4)
    (tmp_path / "in").write_bytes(b"y" * 9_000_000)
    await sandbox.upload_file(tmp_path / "in", "/deep/file")
    await sandbox.download_dir("/deep", tmp_path / "out")
    assert (tmp_path / "out" / "file").stat().st_size == 9_000_000


async def test_memory_is_limited(backend: DockerBackend) -> None:
    sandbox = backend.create(SandboxSpec("limited", docker_image=IMAGE, limits=Limits(memory_mb=64)))
    await sandbox.start()
    assert (await sandbox.exec("head -c 200000000 /dev/zero | tail | wc -c")).stdout.strip() != "200000000"
    assert not sandbox.notes


async def test_program_that_cannot_be_started_is_named(backend: DockerBackend) -> None:
    sandbox = backend.create(SPEC)
    await sandbox.start()
    for program in ("/no/such/program", "no-such-program"):
        with pytest.raises(SandboxError, match=rf"^sandbox podman: {program} cannot be started: (?!.*OCI)[^\n]+$"):
            await sandbox.open_process([program])
    with pytest.raises(SandboxError, match=r"^sandbox podman: unable to find user nouser"):
        await sandbox.exec("true", user="nouser")


async def test_failing_step_has_its_line_in_a_later_stage(
    backend: DockerBackend, environment: Callable[[str], Path]
) -> None:
    dockerfile = f"ARG A\nFROM {IMAGE} AS one\nENV B=1\nFROM {IMAGE}\n# why\nRUN echo to see; exit 7\n"
    with pytest.raises(BuildError) as caught:
        await backend.create(SandboxSpec("build", environment_dir=environment(dockerfile))).start()
    assert str(caught.value) == "environment/Dockerfile:6: RUN echo to see; exit 7: exit status 7\n    to see"


async def test_what_docker_needs_buildkit_for_is_built(
    backend: DockerBackend, environment: Callable[[str], Path]
) -> None:
    dockerfile = f"FROM {IMAGE}\nRUN --mount=type=tmpfs,target=/t touch /t/x && echo built >/made\n"
    sandbox = backend.create(SandboxSpec("build", environment_dir=environment(dockerfile)))
    await sandbox.start()
    assert (await sandbox.exec("cat /made; ls /t")).stdout == "built\n"


@pytest.mark.compose
async def test_services_of_a_compose_file_are_built(backend: DockerBackend, environment: Callable[[str], Path]) -> None:
    directory = environment(f"FROM {IMAGE}\nRUN echo {time.time()} >/made\nWORKDIR /work\n")
    text = "services:\n  main:\n    build: .\n    network_mode: none\n"
    (directory / "docker-compose.yaml").write_text(text)
    sandbox = backend.create(SandboxSpec("compose", environment_dir=directory))
    await sandbox.start()
    assert (await sandbox.exec("pwd; test -e /made && echo built")).stdout == "/work\nbuilt\n"


async def test_images_are_found_by_their_short_names(
    backend: DockerBackend, podman: Podman, environment: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = backend.create(
        SandboxSpec("build", environment_dir=environment(f"FROM {IMAGE}\nRUN touch /{time.time()}\n"))
    )
    await sandbox.start()
    await sandbox.stop()
    monkeypatch.setenv("DOCKER_HOST", podman.socket)
    async with DockerImages(-10.0) as images:
        found = [trace for trace in await images.find() if trace.kind == "image"]
        assert found
        assert all(trace.name.startswith("pytest-benchflow:") for trace in found)
        assert await images.remove(found) == found
        assert not [trace for trace in await images.find() if trace.kind == "image"]


async def test_image_that_cannot_be_pulled_is_named_with_the_reason(
    backend: DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_benchflow.sandboxes.docker.images._PULL_ATTEMPTS", 1)
    with pytest.raises(BuildError, match=r"^image localhost:1/no/such:image cannot be pulled: .*refused"):
        await backend.create(SandboxSpec("pull", docker_image="localhost:1/no/such:image")).start()


async def test_image_without_bash_is_named(backend: DockerBackend, environment: Callable[[str], Path]) -> None:
    directory = environment(f"FROM {IMAGE}\nRUN rm /bin/bash\n")
    with pytest.raises(SandboxError, match=r"image pytest-benchflow:\w+ has no bash.*install it"):
        await backend.create(SandboxSpec("bash", environment_dir=directory)).start()


def test_run_leaves_nothing(podman: Podman, new_project: Callable[..., Project]) -> None:
    project = new_project()
    toml = f'[environment]\ndocker_image = "{IMAGE}"\nworkdir = "/app"\n'
    project.task("tasks/good", toml=toml)
    project.task("tasks/bad", toml=toml, solve="true")
    options = ("--bf-sandbox=docker", "--bf-docker-network=host")
    project.run("tasks", *options, env={"DOCKER_HOST": podman.socket}).assert_outcomes(passed=1, failed=1)
    assert podman.run("ps", "--all", "--quiet") == ""


KILLED = """
import os
import signal


def pytest_bf_rollout_phase(rollout, phase):
    if phase == "execute":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_container_ends_when_its_runner_is_killed(new_project: Callable[..., Project], podman: Podman) -> None:
    project = new_project()
    project.task("tasks/a", toml=f'[environment]\ndocker_image = "{IMAGE}"\n')
    project.write({"conftest.py": KILLED})
    variables = {"DOCKER_HOST": podman.socket, "BF_DOCKER_NETWORK": "host"}
    killed = project.start("tasks", "--bf-sandbox=docker", env=variables)
    assert killed.wait(60) == -signal.SIGKILL, (project.root / "pytest.log").read_text()
    wait_for(lambda: podman.run("ps", "--all", "--quiet") == "", "the end of its container", 10)
