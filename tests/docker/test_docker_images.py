"""Images: named by content, built once, errors that point at a line, and odd images that work all the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_benchflow.core.errors import BenchflowError, BuildError, SandboxError
from pytest_benchflow.sandboxes import Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.docker.backend import DockerBackend

Start = Callable[..., "asyncio.Future[Sandbox]"]
Context = Callable[..., Path]
UNIQUE = "FROM debian:bookworm-slim\nRUN date +%s%N >/when\n"


async def test_dockerfile_is_built_with_its_context(start: Start, context: Context) -> None:
    directory = context("FROM debian:bookworm-slim\nWORKDIR /work\nENV A=b\nCOPY file here\n", file="content")
    sandbox = await start(environment_dir=directory)
    done = await sandbox.exec("pwd; cat here; echo $A")
    assert done.stdout == "/work\ncontentb\n"


async def test_same_content_is_built_once(start: Start, context: Context) -> None:
    directory = context(UNIQUE)
    stamps = {(await (await start(environment_dir=directory)).exec("cat /when")).stdout for _ in range(3)}
    assert len(stamps) == 1


async def test_processes_that_need_the_same_image_build_it_once(context: Context) -> None:
    directory = context(UNIQUE + "RUN sleep 1\n")
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from pytest_benchflow.sandboxes import SandboxSpec\n"
        "from pytest_benchflow.sandboxes.docker import DockerBackend\n"
        "async def main():\n"
        "    backend = DockerBackend()\n"
        "    await backend.preflight()\n"
        "    sandbox = backend.create(SandboxSpec('race', environment_dir=Path(sys.argv[1])))\n"
        "    await sandbox.start()\n"
        "    print((await sandbox.exec('cat /when')).stdout)\n"
        "    await backend.aclose()\n"
        "asyncio.run(main())\n"
    )
    stamps = at_once([sys.executable, "-c", script, str(directory)], 3)
    assert len(stamps) == 1
    assert stamps != {b""}


async def test_a_change_of_the_context_is_another_image(start: Start, context: Context) -> None:
    directory = context("FROM debian:bookworm-slim\nCOPY . /context\nRUN date +%s%N >/when\n", file="one")
    before = await (await start(environment_dir=directory)).exec("cat /when")
    (directory / "file").write_text("other")
    after = await (await start(environment_dir=directory)).exec("cat /when")
    assert before.stdout != after.stdout


async def test_ignored_files_change_nothing(start: Start, context: Context) -> None:
    directory = context(UNIQUE + "COPY . /context\n", file="one", ignored="a", __dockerignore="ignored\n")
    before = await start(environment_dir=directory)
    (directory / "ignored").write_text("b")
    after = await start(environment_dir=directory)
    assert (await before.exec("cat /when")).stdout == (await after.exec("cat /when; ls /context")).stdout.replace(
        "Dockerfile\nfile\n", ""
    )


async def test_force_build_builds_again_once_per_run(start: Start, context: Context) -> None:
    directory = context(UNIQUE)
    stamps = [
        (await (await start(environment_dir=directory, force_build=force)).exec("cat /when")).stdout
        for force in (False, True, True)
    ]
    assert stamps[0] != stamps[1] == stamps[2]


async def test_docker_image_goes_before_the_dockerfile(start: Start, context: Context) -> None:
    directory = context("FROM debian:bookworm-slim\nRUN touch /built\n")
    given = await start(environment_dir=directory, docker_image="debian:bookworm-slim")
    forced = await start(environment_dir=directory, docker_image="debian:bookworm-slim", force_build=True)
    assert (await given.exec("test -e /built")).return_code == 1
    assert (await forced.exec("test -e /built")).return_code == 0


async def test_docker_image_alone_gets_the_environment_files(start: Start, context: Context) -> None:
    directory = context(None, data="content")
    sandbox = await start(environment_dir=directory, docker_image="debian:bookworm-slim", workdir="/there")
    assert (await sandbox.exec("cat /there/data")).stdout == "content"


async def test_changed_base_image_is_noticed(context: Context) -> None:
    import docker

    client = docker.from_env(version="auto").api
    base = f"bf-test/base-{os.getpid()}:1"
    directory = context(f"FROM {base}\nRUN date +%s%N >/when\n")
    try:
        stamps = []
        for number in (1, 2):
            text = f"FROM debian:bookworm-slim\nRUN echo {number} >/base\n"
            build_image(base, text)
            backend = DockerBackend()
            await backend.preflight()
            sandbox = backend.create(SandboxSpec("base", environment_dir=directory))
            await sandbox.start()
            stamps.append((await sandbox.exec("cat /base")).stdout)
            await backend.aclose()
        assert stamps == ["1\n", "2\n"]
    finally:
        client.remove_image(base, force=True)
        client.close()


async def test_failing_step_is_an_error_with_line_command_and_output(start: Start, context: Context) -> None:
    directory = context("FROM debian:bookworm-slim\n# why\nENV A=1 \\\n    B=2\nRUN echo to see; exit 7\n")
    with pytest.raises(BuildError) as caught:
        await start(environment_dir=directory)
    assert str(caught.value) == "environment/Dockerfile:5: RUN echo to see; exit 7: exit status 7\n    to see"
    assert not caught.value.retryable


async def test_failed_build_is_not_tried_again_in_the_same_run(start: Start, context: Context) -> None:
    directory = context("FROM debian:bookworm-slim\nRUN date +%s%N; false\n")
    said = []
    for _ in range(2):
        with pytest.raises(BuildError, match="RUN date") as caught:
            await start(environment_dir=directory)
        said.append(str(caught.value))
    assert said[0] == said[1], "it was built twice, at two times"


async def test_build_that_is_too_slow_ends_in_the_engine_too(start: Start, context: Context, is_podman: bool) -> None:
    mark = f"bf-slow-{os.getpid()}"
    directory = context(f"FROM debian:bookworm-slim\nRUN bash -c 'exec -a {mark} sleep 30'\n")
    with pytest.raises(BuildError, match=r"Dockerfile:2: .* took longer than 1 s; raise build_timeout_sec"):
        await start(environment_dir=directory, build_timeout_sec=1)
    if is_podman:
        pytest.skip("Podman ends a build only after the step that it is at")
    for _ in range(100):
        if not any(mark.encode() in _words(path) for path in Path("/proc").glob("[0-9]*/cmdline")):
            break
        await asyncio.sleep(0.1)
    else:
        pytest.fail("the engine builds on")


async def test_image_that_cannot_be_pulled_is_named(start: Start) -> None:
    with pytest.raises(BuildError, match="image localhost:1/no/such:image cannot be pulled"):
        await start(docker_image="localhost:1/no/such:image")


async def test_image_without_bash_is_named(start: Start, context: Context) -> None:
    directory = context("FROM bf-test/busybox:1\nRUN rm /bin/bash\n")
    with pytest.raises(SandboxError, match=r"image pytest-benchflow:\w+ has no bash.*install it"):
        await start(environment_dir=directory)


async def test_entrypoint_and_command_of_an_image_do_not_matter(start: Start, context: Context) -> None:
    lines = 'ENTRYPOINT ["echo", "swallowed"]\nCMD ["/bin/false"]\nHEALTHCHECK NONE\n'
    sandbox = await start(environment_dir=context(f"FROM debian:bookworm-slim\n{lines}"))
    assert (await sandbox.exec("echo up")).stdout == "up\n"


async def test_a_health_check_is_waited_for_and_may_fail(start: Start, context: Context) -> None:
    later = 'ENTRYPOINT ["sh", "-c", "(sleep 2; touch /up) & exec \\"$@\\"", "me"]\n'
    check = "HEALTHCHECK --interval=1s --retries=20 CMD test -e"
    sandbox = await start(environment_dir=context(f"FROM debian:bookworm-slim\n{later}{check} /up\n"))
    assert (await sandbox.exec("ls /up")).stdout == "/up\n"
    never = context("FROM debian:bookworm-slim\nHEALTHCHECK --interval=1s --retries=1 CMD echo no; exit 3\n")
    with pytest.raises(BenchflowError, match=r"HEALTHCHECK of its image failed for 1 s: exit status 3, no; CMD never"):
        await start(environment_dir=never)


async def test_user_of_an_image_is_the_default_and_root_can_be_asked_for(start: Start, context: Context) -> None:
    dockerfile = "FROM debian:bookworm-slim\nRUN useradd -m worker\nUSER worker\nWORKDIR /home/worker\n"
    sandbox = await start(environment_dir=context(dockerfile))
    assert (await sandbox.exec("id -un; echo $HOME; touch mine")).stdout == "worker\n/home/worker\n"
    assert (await sandbox.exec("id -un; stat -c %U mine", user=0)).stdout == "root\nworker\n"


@pytest.mark.parametrize(
    ("image", "spec", "expected"),
    [("/odd place", None, "/odd place"), ("rel", "b", "/rel/b")],
)
async def test_workdir_is_absolute_and_exists(
    start: Start, context: Context, image: str, spec: str | None, expected: str
) -> None:
    line = f'WORKDIR "{image}"\nRUN rmdir "{expected}" 2>/dev/null || true\n' if image else ""
    sandbox = await start(environment_dir=context(f"FROM debian:bookworm-slim\n{line}"), workdir=spec)
    assert sandbox.workdir == expected
    assert (await sandbox.exec("pwd")).stdout == f"{expected}\n"


async def test_small_image_without_tar_of_gnu_works(start: Start, tmp_path: Path) -> None:
    sandbox = await start(docker_image="bf-test/busybox:1")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ünï").write_text("x")
    await sandbox.upload_dir(tmp_path / "in", "/up")
    await sandbox.exec("rm /bin/tar")
    await sandbox.download_dir("/up", tmp_path / "out")
    assert (tmp_path / "out" / "ünï").read_text() == "x"


def at_once(command: list[str], count: int) -> set[bytes]:
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    return {process.communicate(timeout=120)[0] for process in running}


def build_image(tag: str, text: str) -> None:
    command = ["docker", "build", "-q", "-t", tag, "-"]
    subprocess.run(command, input=text.encode(), check=True, capture_output=True)


def _words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []
