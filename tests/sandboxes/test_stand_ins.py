"""What stands in for a base image: which tool of the host, in which version, and what is refused before any build."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping
from glob import glob
from pathlib import Path

import pytest
from sandbox_helpers import StartSandbox, needs_users, output

from pytest_benchflow.core.errors import BuildError, UnsupportedError
from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.sandboxes.local import standins, toolchains
from pytest_benchflow.sandboxes.local.backend import LocalBackend
from pytest_benchflow.sandboxes.local.standins import (
    Image,
    StandInError,
    System,
    find_stand_in,
    parse_image,
    problem_of_command,
    system_of,
)
from pytest_benchflow.sandboxes.local.toolchains import Version, closest

Write = Callable[..., Path]


@pytest.fixture
def environment(tmp_path: Path) -> Write:
    """Give the function that writes a build context."""

    def write(dockerfile: str) -> Path:
        directory = tmp_path / "environment"
        directory.mkdir(exist_ok=True)
        (directory / "Dockerfile").write_text(dockerfile)
        return directory

    return write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Give a home in which tools can be put."""
    return tmp_path / "home"


def put(path: Path, text: str = "#!/bin/sh\n") -> Path:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def environ(home: Path) -> Mapping[str, str]:
    return {"HOME": str(home), "PATH": ""}


@pytest.mark.parametrize(
    ("text", "name", "tag"),
    [
        ("python", "python", ""),
        ("python:3.12-slim", "python", "3.12-slim"),
        ("images.example/library/python:3", "python", "3"),
        ("images.example:5000/docker/library/golang:1.22-bookworm", "golang", "1.22-bookworm"),
        ("images.example/node:20@sha256:0123", "node", "20"),
        ("Images.example/astral-sh/uv:0.8.14", "astral-sh/uv", "0.8.14"),
        ("localhost:5000/mine", "mine", ""),
    ],
)
def test_references_are_read_in_their_parts(text: str, name: str, tag: str) -> None:
    assert parse_image(text) == Image(text, name, tag)


@pytest.mark.parametrize(
    ("versions", "asked", "best"),
    [
        ([(3, 9), (3, 11), (3, 13)], (3, 11), (3, 11)),
        ([(3, 9), (3, 11)], (3, 10), (3, 11)),
        ([(3, 9), (3, 13)], (3, 10), (3, 9)),
        ([(3, 11), (3, 12)], (3, 13), (3, 12)),
        ([(3, 9), (3, 13), (3, 11)], (), (3, 13)),
        ([(17, 0, 1), (21, 0, 2), (21, 0, 9)], (21,), (21, 0, 9)),
        ([], (3,), None),
    ],
)
def test_the_nearest_version_is_taken_and_rather_a_newer_one(
    versions: list[Version], asked: Version, best: Version | None
) -> None:
    assert closest(versions, asked) == best


@pytest.mark.parametrize(
    ("image", "system"),
    [
        ("debian:bookworm-slim", System("debian", "12")),
        ("debian:13.0-slim", System("debian", "13")),
        ("ubuntu:22.04", System("ubuntu", "22.04")),
        ("ubuntu", System("ubuntu")),
        ("python:3.11-slim-bullseye", System("debian", "11")),
        ("python:3.11-slim", System("debian")),
        ("node:20-alpine", System("alpine")),
        ("eclipse-temurin:17-jdk-jammy", System("ubuntu", "22.04")),
    ],
)
def test_images_tell_their_distribution(image: str, system: System) -> None:
    assert system_of(parse_image(image)) == system


DEBIAN = {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian 12"}


@pytest.mark.parametrize(
    ("command", "system", "problem"),
    [
        ("apt-get update && apt-get install -y curl", System("ubuntu", "24.04"), None),
        (
            "apt-get install -y git \\\n curl=8.5.0-2ubuntu10.6",
            System("ubuntu", "24.04"),
            "curl=8.5.0-2ubuntu10.6 is a version of ubuntu 24.04, and this host is Debian 12",
        ),
        ("apt-get install -y curl=7.88.1-10", System("debian", "12"), None),
        ("apt-get install -y curl=7.88.1-10", System("debian"), None),
        ("X=1.0 make && apt-get install -y curl", System("ubuntu", "24.04"), None),
        (
            "add-apt-repository -y ppa:deadsnakes/ppa",
            System("ubuntu"),
            "a PPA is for Ubuntu, and this host is Debian 12",
        ),
        ("apk add --no-cache git", System("alpine"), "apk belongs to alpine, and Debian 12 does not have it"),
        ("command -v apk || apt-get update", System("debian"), None),
    ],
)
def test_what_only_another_distribution_can_do_is_known_from_the_command(
    monkeypatch: pytest.MonkeyPatch, command: str, system: System, problem: str | None
) -> None:
    monkeypatch.setattr(standins, "_release_file", lambda: DEBIAN)
    assert problem_of_command(command, system) == problem


def test_a_python_of_the_callers_home_is_found_by_its_version(home: Path) -> None:
    prefix = home / ".pyenv/versions/3.99.1"
    put(prefix / "bin/python3.99")
    put(prefix / "lib/python3.99/os.py")
    put(prefix / "lib/python3.99/ensurepip/_bundled/pip-99.0-py3-none-any.whl")
    put(prefix / "include/python3.99/patchlevel.h", '#define PY_VERSION  "3.99.1"\n')
    stand_in = find_stand_in("python:3.99-slim", environ(home))
    assert stand_in.note == "python:3.99-slim has Python 3.99.1 of this host"
    assert stand_in.env["PYTHON_VERSION"] == "3.99.1"
    assert (
        find_stand_in("python:3.98", environ(home)).note == "python:3.98 has Python 3.99.1 of this host instead of 3.98"
    )
    (prefix / "lib/python3.99/ensurepip/_bundled/pip-99.0-py3-none-any.whl").unlink()
    if not glob("/usr/share/python-wheels/pip-*.whl"):
        with pytest.raises(StandInError, match=r"Python 3\.99\.1 of this host has no pip"):
            find_stand_in("python:3.99", environ(home))


def test_other_languages_are_found_where_their_tools_put_them(home: Path) -> None:
    put(home / "sdk/go91.2/bin/go")
    put(home / "sdk/go91.2/VERSION", "go91.2.3\ntime 2026\n")
    put(home / ".rustup/toolchains/stable/bin/rustc", "#!/bin/sh\necho rustc 91.5.0\n")
    put(home / ".rustup/toolchains/stable/bin/cargo")
    put(home / ".nvm/versions/node/v91.0.0/bin/node", "#!/bin/sh\necho v91.0.0\n")
    put(home / ".nvm/versions/node/v91.0.0/bin/npm")
    put(home / ".nvm/versions/node/v91.0.0/lib/node_modules/corepack/dist/yarn.js")
    (home / ".nvm/versions/node/v91.0.0/bin/corepack").symlink_to("../lib/node_modules/corepack/dist/corepack.js")
    put(home / "jdk/bin/javac")
    put(home / "jdk/bin/java")
    put(home / "jdk/release", 'JAVA_VERSION="91.0.1"\n')
    variables = {**environ(home), "JAVA_HOME": str(home / "jdk")}
    for image, note, directory in (
        ("golang:91.2-bookworm", "golang:91.2-bookworm has Go 91.2.3 of this host", "/usr/local/go/bin"),
        ("rust:91", "rust:91 has Rust 91.5.0 of this host", "/usr/local/cargo/bin"),
        ("node:91-slim", "node:91-slim has Node.js 91.0.0 of this host", None),
        ("eclipse-temurin:91", "eclipse-temurin:91 has Java 91.0.1 of this host", "/opt/java/openjdk/bin"),
    ):
        # JAVA_HOME names a home, and its bin is in PATH of whoever uses it.
        stand_in = find_stand_in(image, {**variables, "PATH": str(home / "jdk/bin")})
        assert stand_in.note == note
        assert directory is None or directory in stand_in.path
    (yarn,) = [text for files in find_stand_in("node:91", variables).files for text in files.texts]
    assert yarn[0] == "/usr/local/bin/yarn"
    assert "exec node /usr/local/lib/node_modules/corepack/dist/yarn.js " in yarn[1]


@pytest.mark.parametrize(
    ("image", "message", "advice"),
    [
        (
            "nginx:1",
            "nothing on this host stands in for this image",
            "use --bf-sandbox docker, or --bf-base-image-over",
        ),
        ("swift:99", "there is no swift on this host", "install it or use --bf-sandbox docker"),
        ("python:2.7", "there is no python2 on this host", "install it or use --bf-sandbox docker"),
    ],
)
def test_what_this_host_lacks_is_refused_with_advice(home: Path, image: str, message: str, advice: str) -> None:
    with pytest.raises(StandInError) as failure:
        find_stand_in(image, environ(home))
    assert (str(failure.value), failure.value.advice.startswith(advice)) == (message, True)


def test_a_compiler_older_than_the_images_is_refused(home: Path) -> None:
    put(home / "sdk/go1.0/bin/go")
    put(home / "sdk/go1.0/VERSION", "go1.0.1\n")
    with pytest.raises(StandInError) as failure:
        find_stand_in("golang:99.5", environ(home))
    assert "older than the image's" in str(failure.value)
    assert failure.value.advice == "install go 99.5 or use --bf-sandbox docker"


def test_an_image_without_a_stand_in_is_refused_before_anything_starts(
    backend: LocalBackend, environment: Write
) -> None:
    for lines, message in (
        ("FROM debian\nFROM nginx\nRUN true\n", "environment/Dockerfile:2: FROM nginx: nothing on this host"),
        ("FROM debian\nCOPY --from=nginx /a /a\n", "environment/Dockerfile:2: COPY --from=nginx: nothing on this"),
        ("FROM nginx AS a\nFROM a AS b\nFROM debian\nCOPY --from=b /a /a\n", "environment/Dockerfile:1: FROM nginx: "),
    ):
        with pytest.raises(UnsupportedError) as failure:
            backend.create(SandboxSpec(name="box", environment_dir=environment(lines)))
        assert str(failure.value).startswith(message)


def test_an_image_that_nobody_needs_is_not_missed(backend: LocalBackend, environment: Write) -> None:
    text = "FROM nginx AS unused\nRUN apk add x\nFROM debian\n"
    sandbox = backend.create(SandboxSpec(name="box", environment_dir=environment(text)))
    assert [note.partition(" is ")[0] for note in sandbox.notes] == ["FROM debian"]


def write_wheel(directory: Path) -> None:
    """Write the smallest package that pip can install."""
    with zipfile.ZipFile(directory / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")


PIP = "pip install --quiet --no-index --root-user-action=ignore --force-reinstall /tiny-1.0-py3-none-any.whl"
WHERE = 'python -c "import sys, ssl, ctypes, sqlite3, tiny; print(sys.prefix, sys.base_prefix, tiny.__file__)"'


@pytest.mark.parametrize("which", ["caller", "system"])
async def test_python_is_as_in_its_images(
    start: StartSandbox, environment: Write, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    if which == "system":
        program = os.path.realpath("/usr/bin/python3")
        if not (os.path.exists("/etc/debian_version") and glob("/usr/share/python-wheels/pip-*.whl")):
            pytest.skip("needs Python of Debian, with python3-venv")
        monkeypatch.setattr(toolchains, "_python_programs", lambda environ: iter([program]))
    directory = environment(f"FROM python:3\nCOPY *.whl /\nRUN {PIP}\n")
    write_wheel(directory)
    sandbox = await start(environment_dir=directory)
    seen = await output(sandbox, f"{WHERE}; command -v python python3 pip pip3; python -m pip --version")
    where, *programs, pip = seen.splitlines()
    prefix, base, package = where.split()
    assert (prefix, base) == ("/usr/local", "/usr/local")
    assert package.startswith("/usr/local/lib/python3.")
    assert programs == [f"/usr/local/bin/{name}" for name in ("python", "python3", "pip", "pip3")]
    assert pip.startswith("pip ")
    # What the host's own Python has is not the image's.
    names = set((await output(sandbox, "python -m pip list --format=freeze | cut -d= -f1")).split())
    assert names <= {"pip", "setuptools", "tiny"}
    made = await output(sandbox, "python -m venv /tmp/v && /tmp/v/bin/python -c 'import sys; print(sys.prefix)'")
    assert made == "/tmp/v\n"


@needs_users
async def test_pip_installs_for_an_ordinary_user_too(start: StartSandbox, environment: Write) -> None:
    directory = environment(f"FROM python:3.{sys.version_info[1]}-slim\nCOPY *.whl /\nRUN useradd -m agent\n")
    write_wheel(directory)
    sandbox = await start(environment_dir=directory)
    # The library of the same name that the system may have is another Python's.
    library = await output(sandbox, "ldd /usr/local/bin/python | grep libpython || true", user="agent")
    assert "/usr/local/lib/" in (library or "/usr/local/lib/")
    assert await output(sandbox, f"{PIP}; {WHERE}", user="agent") == "/usr/local /usr/local " + await output(
        sandbox, "ls /home/agent/.local/lib/python3.*/site-packages/tiny.py"
    )


@pytest.mark.skipif(
    not (glob("/usr/lib/python3*/EXTERNALLY-MANAGED") and glob("/usr/lib/python3/dist-packages/pip")),
    reason="needs a system whose own Python refuses pip",
)
async def test_the_systems_own_python_takes_packages_where_the_image_would(
    start: StartSandbox, environment: Write
) -> None:
    run = f"RUN /usr/bin/python3 -m {PIP} && /usr/bin/python3 -c 'import tiny'\n"
    for image in ("ubuntu:22.04", "debian:bullseye-slim"):
        directory = environment(f"FROM {image}\nCOPY *.whl /\n{run}")
        write_wheel(directory)
        await start(environment_dir=directory)
    with pytest.raises(BuildError, match="externally-managed-environment"):
        await start(environment_dir=environment(f"FROM debian:bookworm\nCOPY *.whl /\n{run}"))


@pytest.mark.skipif(not shutil.which("npm", path="/usr/bin:/usr/local/bin"), reason="needs Node.js of the system")
async def test_node_keeps_global_packages_where_its_images_do(start: StartSandbox, environment: Write) -> None:
    sandbox = await start(environment_dir=environment("FROM node:20-slim\n"))
    assert "(node)" in await output(sandbox, "id node")
    if toolchains._yarn("/usr/bin", ""):
        assert await output(sandbox, "command -v yarn") == "/usr/local/bin/yarn\n"
    seen = (await output(sandbox, "command -v node npm npx; npm root -g; echo $NODE_VERSION; node --version")).split()
    *paths, version, given = seen
    assert paths == ["/usr/local/bin/node", "/usr/local/bin/npm", "/usr/local/bin/npx", "/usr/local/lib/node_modules"]
    assert given == f"v{version}"


@needs_users
async def test_the_user_of_an_image_is_there(start: StartSandbox, environment: Write) -> None:
    text = "FROM ubuntu:24.04\nVOLUME /data $HOME/more\nRUN chown ubuntu:ubuntu /data\nUSER ubuntu\nRUN touch /data/x\n"
    sandbox = await start(environment_dir=environment(text))
    assert await output(sandbox, "id -un; echo ~; stat -c %U:%G /data/x; ls -d /more") == (
        "ubuntu\n/home/ubuntu\nubuntu:ubuntu\n/more\n"
    )


async def test_an_image_can_be_copied_from_without_a_stage(start: StartSandbox, environment: Write) -> None:
    text = "FROM debian\nCOPY --from=python:3 /usr/local/bin/pip /opt/pip\n"
    sandbox = await start(environment_dir=environment(text))
    assert "pip" in await output(sandbox, "cat /opt/pip; test ! -e /usr/local/bin/pip && echo alone")
    assert [note.partition(" has ")[0] for note in sandbox.notes][1:] == ["COPY --from=python:3"]


@pytest.mark.parametrize(
    ("image", "place"),
    [
        ("images.example/astral-sh/uv", "/uv"),
        ("astral/uv", "/uv"),
        ("astral-sh/uv:python3.12-bookworm", "/usr/local/bin/uv"),
    ],
)
def test_uv_of_the_host_is_taken_where_no_version_is_asked_for(home: Path, image: str, place: str) -> None:
    host = {**environ(home), "PATH": str(home / "bin")}
    for name in ("uv", "uvx"):
        put(home / "bin" / name)
    stand_in = find_stand_in(image, host)
    assert stand_in.note.endswith("has uv of this host")
    assert [(tree.source, tree.target) for tree in stand_in.files[-1].trees] == [
        (str(home / "bin/uv"), place),
        (str(home / "bin/uvx"), f"{place}x"),
    ]
    assert "PyPI" not in stand_in.note
    assert "0.8.14" in find_stand_in("astral-sh/uv:0.8.14", host).note
    (home / "bin/uvx").unlink()
    assert find_stand_in(image, host).note.endswith("as PyPI has it")


async def test_a_cache_of_a_build_is_only_a_matter_of_speed(start: StartSandbox, environment: Write) -> None:
    text = "FROM debian\nRUN --mount=type=cache,target=/root/.cache --mount=type=cache,target=/v echo on > /done\n"
    assert await output(await start(environment_dir=environment(text)), "cat /done") == "on\n"
