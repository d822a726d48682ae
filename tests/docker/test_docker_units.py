"""Decisions of the docker backend that need no daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from weakref import WeakSet

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.core import process
from pytest_benchflow.core.capture import CAPTURE_BYTES, Capture
from pytest_benchflow.core.errors import SandboxError, UnsupportedError
from pytest_benchflow.core.network import NO_NETWORK
from pytest_benchflow.sandboxes import Limits, SandboxSpec
from pytest_benchflow.sandboxes.build_context import BuildContext
from pytest_benchflow.sandboxes.docker import client
from pytest_benchflow.sandboxes.docker.backend import engine_facts, is_on_this_machine
from pytest_benchflow.sandboxes.docker.channel import Answer, can_export, quote
from pytest_benchflow.sandboxes.docker.cleanup import list_leftovers
from pytest_benchflow.sandboxes.docker.client import Address, DockerEngine, Unreachable, daemon_answers, find_address
from pytest_benchflow.sandboxes.docker.compose import (
    as_service,
    exclusive_resources,
    explain,
    explain_build,
    override_file,
)
from pytest_benchflow.sandboxes.docker.connection import open_connection
from pytest_benchflow.sandboxes.docker.container_spec import (
    EngineFacts,
    ImageFacts,
    container_config,
    is_orphan,
    make_labels,
    notes_for,
    working_directory,
)
from pytest_benchflow.sandboxes.docker.containers import Starter
from pytest_benchflow.sandboxes.docker.exec import refusal
from pytest_benchflow.sandboxes.docker.images import BuildLog, _healthcheck, short_name
from pytest_benchflow.sandboxes.docker.streams import STDERR, STDOUT, Reader
from pytest_benchflow.sandboxes.dockerfile import base_image, buildkit_line, line_of_step, needs_platform
from pytest_benchflow.sandboxes.startup import ImageHealthcheck

ENGINE = EngineFacts(cpus=4, has_gpus=False, has_bridge=True)


@given(st.binary(max_size=300).filter(lambda data: b"\0" not in data))
def test_bash_reads_back_what_was_quoted(data: bytes) -> None:
    word = quote(data)
    assert word.isascii()
    assert word.isprintable()
    shown = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True, env={"LC_ALL": "C"})
    assert shown.stdout == data


@pytest.mark.parametrize(("name", "can"), [("A_1", True), ("a.b", False), ("1A", False), ("UID", False), ("", False)])
def test_which_variables_bash_can_export(name: str, can: bool) -> None:
    assert can_export(name) is can


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 7))
def test_end_is_found_however_the_stream_is_cut(parts: list[bytes], step: int) -> None:
    async def run() -> tuple[str, bytes, bytes]:
        out, err = bytearray(), bytearray()
        answer = Answer(_into(out), _into(err))
        text = b"".join(parts)
        mark = f"\0bf {answer.nonce} 7 0\n".encode()
        for stream in (STDOUT, STDERR):
            whole = text + mark + b"late"
            for start in range(0, len(whole), step):
                await answer.feed(stream, whole[start : start + step])
        return answer.ended.result().status, bytes(out), bytes(err)

    status, out, err = asyncio.run(run())
    assert (status, out, err) == ("7", b"".join(parts), b"".join(parts))


async def test_mark_that_never_ends_is_output_after_all() -> None:
    out = bytearray()
    answer = Answer(_into(out), _into(bytearray()))
    text = f"x\0bf {answer.nonce[:5]}".encode()
    await answer.feed(STDOUT, text)
    await answer.flush()
    assert out == text
    answer.ended.cancel()


async def test_flood_keeps_its_start_and_its_end() -> None:
    capture = Capture()
    await capture.feed(b"first")
    for _ in range(60):
        await capture.feed(b"x" * (1 << 20))
    await capture.feed(b"last")
    text = capture.text()
    assert text.startswith("first")
    assert text.endswith("last")
    assert "bytes left out" in text
    assert len(text) < 3 * CAPTURE_BYTES


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=10), st.lists(st.integers(1, 30), max_size=20))
def test_reader_gives_exactly_what_is_asked_for(pieces: list[bytes], sizes: list[int]) -> None:
    reader, whole = Reader(iter(pieces)), b"".join(pieces)
    for size in sizes:
        assert reader.read(size) == whole[:size]
        whole = whole[size:]
    assert reader.read() == whole


@pytest.mark.parametrize(
    ("image", "spec", "expected"),
    [
        ("", None, "/app"),
        ("/", None, "/"),
        ("/srv", None, "/srv"),
        ("srv", None, "/srv"),
        ("", "work", "/work"),
        ("/srv", "work", "/srv/work"),
        ("/srv", "/work", "/work"),
    ],
)
def test_working_directory(image: str, spec: str | None, expected: str) -> None:
    assert working_directory(SandboxSpec("x", workdir=spec), ImageFacts("i", workdir=image)) == expected


def config(spec: SandboxSpec, network: str = "bridge") -> dict[str, object]:
    made = container_config(spec, ImageFacts("i"), ENGINE, labels={"l": "1"}, network=network, lease_sec=0)
    assert json.dumps(made)
    host: dict[str, object] = made["HostConfig"]
    return host


def test_limits_in_the_create_request() -> None:
    host = config(SandboxSpec("x", limits=Limits(cpus=0.5, memory_mb=100)))
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (500_000_000, 104857600, 104857600)
    assert config(SandboxSpec("x", limits=Limits(cpus=99)))["NanoCpus"] == 4_000_000_000
    assert "NanoCpus" not in config(SandboxSpec("x"))


@pytest.mark.parametrize(
    ("network", "extra"), [("bridge", True), ("host", False), ("none", False), ("bf-guarded-1", True)]
)
def test_network_in_the_create_request(network: str, extra: bool) -> None:
    host = config(SandboxSpec("x"), network)
    assert host["NetworkMode"] == network
    assert ("ExtraHosts" in host) is extra


def test_gpus_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="gpus = 2"):
        config(SandboxSpec("x", limits=Limits(gpus=2)))


def test_owner_is_orphaned_only_when_dead_and_here() -> None:
    mine = make_labels("run", "rollout")
    assert not is_orphan(mine)
    machine, pid, started = mine["benchflow.owner"].split("/")
    assert is_orphan({"benchflow.owner": f"{machine}/{pid}/{int(started) + 1}"})
    assert is_orphan({"benchflow.owner": f"{machine}/999999999/1"})
    assert not is_orphan({"benchflow.owner": "another-machine/999999999/1"})
    assert not is_orphan({})


def test_records_of_what_an_engine_has_removed_are_no_leftovers() -> None:
    # What an engine that crashed and was started again has been seen to list.
    ghost = {"Id": "a" * 64, "Names": [], "State": "dead", "Labels": make_labels("run", "ghost")}
    real = {"Id": "b" * 64, "Names": ["/bf-real"], "State": "running", "Labels": make_labels("run", "real")}
    client = SimpleNamespace(
        containers=lambda **_: [ghost, real],
        networks=lambda **_: [],
        volumes=lambda **_: {"Volumes": None},
        images=lambda **_: [],
    )

    class FakeEngine:
        async def call(self, work: Callable[[object], object]) -> object:
            return work(client)

    found = asyncio.run(list_leftovers(FakeEngine(), everything=True))  # type: ignore[arg-type]
    assert [item.name for item in found] == ["bf-real"]


@pytest.fixture
def docker_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give an empty configuration of the docker command."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path


def write_context(home: Path, name: str, **endpoint: object) -> Path:
    meta = home / "contexts" / "meta" / name
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": endpoint}}))
    return home / "contexts" / "tls" / name / "docker"


def test_address_from_the_environment(docker_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://example.test:1234")
    assert find_address() == Address("tcp://example.test:1234")
    assert find_address().host_and_port == ("example.test", 1234)


def test_certificates_from_the_environment(docker_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://example.test")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    with pytest.raises(SandboxError, match=rf"there is no {docker_home}/ca\.pem; set DOCKER_CERT_PATH"):
        find_address()
    (docker_home / "ca.pem").touch()
    assert find_address() == Address("tcp://example.test", docker_home)
    assert find_address().host_and_port == ("example.test", 2376)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "nonsense",
            r"DOCKER_HOST is 'nonsense', which is not an address of a Docker daemon; give unix:///PATH or tcp://HOST",
        ),
        ("tcp://", "which is not an address"),
        ("tcp://example.test:port", "which is not an address"),
        ("tcp://example.test:99999", "which is not an address"),
        ("unix://", "which is not an address"),
        ("unix://relative.sock", "which is not an address"),
        ("http://example.test:2375", "which is not an address"),
        (
            "ssh://me@example.test:22",
            "through ssh:// as it is; forward its socket with `ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock "
            "ssh://me@example.test:22` and set DOCKER_HOST=unix:///tmp/docker.sock",
        ),
        ("ssh://example.test/run/d.sock", "-L /tmp/docker.sock:/run/d.sock ssh://example.test`"),
    ],
)
def test_address_that_cannot_be_used(docker_home: Path, monkeypatch: pytest.MonkeyPatch, url: str, said: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", url)
    with pytest.raises(SandboxError, match=said):
        find_address()
    assert not daemon_answers()


def test_address_from_the_current_context(docker_home: Path) -> None:
    (docker_home / "config.json").write_text('{"currentContext": "mine"}')
    write_context(docker_home, "other", Host="unix:///other.sock")
    write_context(docker_home, "mine", Host="unix:///mine.sock")
    assert find_address() == Address("unix:///mine.sock")


def test_context_from_the_environment_has_its_certificates(docker_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    tls = write_context(docker_home, "far", Host="tcp://example.test:1")
    assert find_address() == Address("tcp://example.test:1")
    tls.mkdir(parents=True)
    assert find_address() == Address("tcp://example.test:1", tls)
    monkeypatch.setenv("DOCKER_HOST", "unix:///first.sock")
    assert find_address() == Address("unix:///first.sock")


def test_context_that_cannot_be_used_is_named(docker_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    with pytest.raises(
        SandboxError, match=r"docker context gone is chosen but cannot be found or read in .*; see `docker context ls`"
    ):
        find_address()
    write_context(docker_home, "gone", Host="ssh://me@example.test")
    with pytest.raises(SandboxError, match=r"docker context gone is ssh://me@example\.test: .*forward its socket"):
        find_address()
    write_context(docker_home, "blind", Host="tcp://example.test:1", SkipTLSVerify=True)
    monkeypatch.setenv("DOCKER_CONTEXT", "blind")
    with pytest.raises(SandboxError, match="docker context blind skips the verification"):
        find_address()


def test_docker_command_finds_the_same_daemon(docker_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address("tcp://example.test:1", docker_home)
    (docker_home / "ca.pem").touch()
    for name, value in address.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    assert find_address() == address


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "something other than a Docker daemon answers there"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 7\r\n\r\n<html/>", "something other than a Docker daemon answers there"),
        (b"two\r\nlines\r\n", "two"),
        (None, "no answer"),
    ],
    ids=["json", "html", "noise", "mute"],
)
async def test_what_is_no_daemon_is_told_in_one_line(
    answer: bytes | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is not None and await reader.readline():
            writer.write(answer)
        else:
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    monkeypatch.setattr(client, "_HELLO_TIMEOUT_SEC", 0.5)
    socket = tmp_path / "docker.sock"
    async with await asyncio.start_unix_server(serve, socket):
        engine = DockerEngine(Address(f"unix://{socket}"))
        with pytest.raises(Unreachable) as caught:
            await engine.version()
        engine.close()
    assert caught.value.message == f"no Docker daemon answers at unix://{socket} ({reason})"


async def test_copies_of_the_runner_do_not_hold_its_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This process is no copy: whatever else it holds must stay.
    monkeypatch.setattr(process, "_connections", WeakSet())
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 UPGRADED\r\n\r\n")
        await reader.read()
        ended.set()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_unix_server(serve, tmp_path / "docker.sock"):
        connection = await open_connection(Address(f"unix://{tmp_path}/docker.sock"), "/attach")
        process.detach_connections()
        async with asyncio.timeout(10):
            await ended.wait()
        connection.close()


def test_no_daemon_is_known_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    began = time.perf_counter()
    assert not daemon_answers()
    assert time.perf_counter() - began < 0.05


def context(tmp_path: Path, dockerfile: str) -> BuildContext:
    (tmp_path / "Dockerfile").write_text(dockerfile)
    return BuildContext(tmp_path)


@pytest.mark.parametrize(
    ("dockerfile", "needs"),
    [
        ("FROM a\nRUN echo\nCOPY . .", False),
        ("FROM a\nRUN --mount=type=cache,target=/c x", True),
        ("FROM a\nCOPY --chmod=755 a b", True),
        ("FROM a\nCOPY --from=x --chown=1 a b", False),
        ("FROM a\nCOPY --chown=1 \\\n  --chmod=755 a b", True),
        ("FROM a\nRUN <<EOF\nx\nEOF", True),
        ("FROM a\nRUN test 1 -lt 2", False),
    ],
)
def test_which_dockerfiles_need_buildkit(dockerfile: str, needs: bool) -> None:
    assert (buildkit_line(dockerfile) is not None) is needs


def test_line_that_needs_buildkit() -> None:
    assert buildkit_line("FROM a\nRUN x\n\n\nRUN --mount=type=cache,target=/c y\nRUN <<EOF\nz\nEOF\n") == 5


@pytest.mark.parametrize(
    ("dockerfile", "needs"),
    [
        ("FROM a\nARG TARGETARCH\nRUN x", True),
        ("ARG BUILDPLATFORM\nFROM a", True),
        ("FROM a\narg A=1 TARGETOS", True),
        ("FROM a\nRUN echo ARG TARGETARCH", False),
        ("FROM a\nARG MY_TARGETS", False),
    ],
)
def test_which_dockerfiles_ask_for_the_platform(dockerfile: str, needs: bool) -> None:
    assert needs_platform(dockerfile) is needs


@pytest.mark.parametrize(
    ("dockerfile", "base"),
    [
        ("FROM a:1\nRUN x", "a:1"),
        ("FROM a AS one\nFROM b\nCOPY --from=one x y", "b"),
        ("FROM a AS one\nFROM one AS two\nFROM two", "a"),
        ("ARG V=1\nFROM a:$V", None),
        ("FROM scratch", None),
        ("FROM --platform=linux/amd64 a", "a"),
        ("FROM a\nRUN cat <<EOF\nFROM b\nEOF", "a"),
    ],
)
def test_base_of_the_last_stage(dockerfile: str, base: str | None) -> None:
    assert base_image(dockerfile) == base


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ("pytest-benchflow:1", "pytest-benchflow:1"),
        ("localhost/pytest-benchflow:1", "pytest-benchflow:1"),
        ("hub.test/library/pytest-benchflow:1", "pytest-benchflow:1"),
        ("hub.test/me/pytest-benchflow:1", "hub.test/me/pytest-benchflow:1"),
    ],
)
def test_name_of_an_image_that_podman_lists(listed: str, name: str) -> None:
    assert short_name(listed) == name


def test_line_of_a_step_within_a_stage() -> None:
    dockerfile = "ARG A\nFROM a AS one\nRUN x\n\nfrom b\nRUN y \\\n z\nRUN w\n"
    assert [line_of_step(dockerfile, step, stage=1) for step in (1, 2)] == [2, 3]
    assert [line_of_step(dockerfile, step, stage=2) for step in (1, 2, 3, 4)] == [5, 6, 8, 1]
    assert line_of_step(dockerfile, 1, stage=3) == 1


STAGES = "ARG V\nFROM a AS one\nRUN x\nFROM b\nRUN echo to see; exit 7\nCOPY none /x\nRUNN y\n"


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (
            [
                {"stream": "Step 5/7 : RUN echo to see; exit 7\n"},
                {"stream": "\x1b[91mto see\n\x1b[0m"},
                {"stream": " ---> Running in 1234\n"},
                {"error": "The command '/bin/sh -c echo to see; exit 7' returned a non-zero code: 7"},
            ],
            "env/Dockerfile:5: RUN echo to see; exit 7: exit status 7\n    to see",
        ),
        (
            [
                {"stream": "[2/2] STEP 1/4: FROM b\n"},
                {"stream": "[2/2] STEP 2/4: RUN echo to see; exit 7\n"},
                {"stream": "to see\n"},
                {"error": 'building at STEP "RUN echo to see; exit 7": while running runtime: exit status 7\n'},
            ],
            "env/Dockerfile:5: RUN echo to see; exit 7: exit status 7\n    to see",
        ),
        (
            [
                {"stream": "[2/2] STEP 3/4: COPY none /x\n--> 325144ec691\n"},
                {"error": 'building at STEP "COPY none /x": checking on sources: "/none": no such file or directory\n'},
            ],
            'env/Dockerfile:6: COPY none /x: checking on sources: "/none": no such file or directory',
        ),
        (
            [
                {"stream": "[2/2] STEP 4/4: RUNN y\n"},
                {"stream": 'time="now" level=error msg="+(UNHANDLED LOGLEVEL) &imagebuilder.Step{Env:[]string{}}"\n'},
                {"error": 'building at STEP "RUNN ": Build error: Unknown instruction: "RUNN" &imagebuilder.Step{A}'},
            ],
            'env/Dockerfile:7: RUNN y: Unknown instruction: "RUNN"',
        ),
        (
            [{"error": "dockerfile parse error line 7: unknown instruction: RUNN"}],
            "env/Dockerfile:7: unknown instruction: RUNN",
        ),
        (
            [
                {"stream": "STEP 1/3: FROM a\n"},
                {"stream": "Trying to pull a...\n"},
                {"error": "creating build container: initializing source: connection refused\n"},
            ],
            "env/Dockerfile:2: FROM a: the image cannot be pulled: creating build container: "
            "initializing source: connection refused\n    Trying to pull a...",
        ),
    ],
    ids=["docker", "podman", "podman-copy", "podman-unknown", "docker-parse", "podman-pull"],
)
def test_builders_are_understood(tmp_path: Path, messages: list[dict[str, str]], said: str) -> None:
    (tmp_path / "env").mkdir()
    log = BuildLog(context(tmp_path / "env", STAGES))
    *before, last = messages
    assert [log.read(json.dumps(message).encode()) for message in before] == [None] * len(before)
    reason = log.read(json.dumps(last).encode())
    assert reason
    assert log.explain(reason) == said


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            [
                "#1 [internal] load remote build context",
                "#1 DONE 0.0s",
                "#2 [2/2] RUN --mount=type=cache,target=/c false",
                "Dockerfile:5",
                'ERROR: failed to solve: process "/bin/sh -c false" did not complete successfully: exit code: 1',
            ],
            'env/Dockerfile:5: process "/bin/sh -c false" did not complete successfully: exit code: 1\n'
            "    #2 [2/2] RUN --mount=type=cache,target=/c false\n    Dockerfile:5",
        ),
        (
            [
                "#2 copy /context /",
                "failed to solve with frontend dockerfile.v0: failed to create LLB definition: "
                "dockerfile parse error line 7: unknown instruction: RUNN",
            ],
            "env/Dockerfile:7: unknown instruction: RUNN",
        ),
    ],
    ids=["buildx", "older"],
)
def test_buildkit_is_understood(tmp_path: Path, lines: list[str], said: str) -> None:
    (tmp_path / "env").mkdir()
    log = BuildLog(context(tmp_path / "env", STAGES))
    for line in lines:
        log.read_plain(line)
    assert log.explain(log.buildkit_error() or "") == said


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("an output: no", None),
        ('OCI runtime exec failed: exec failed: exec: "x": not found: unknown', 'exec: "x": not found'),
        ("exec /bin/bash: argument list too long", "argument list too long"),
        ("exec /bin/bash: something else", None),
        ("unable to find user x: no matching entries", "unable to find user x: no matching entries"),
        ('Error: runc: exec failed: exec: "x": not found: OCI runtime was sad\nError: read', 'exec: "x": not found'),
        ("Error: crun: executable file `x` not found: No such file", "executable file `x` not found: No such file"),
    ],
)
def test_engines_that_could_not_start_a_program_are_understood(output: str, reason: str | None) -> None:
    assert refusal(output.encode()) == reason


def test_line_of_a_step_skips_comments_continuations_and_here_documents() -> None:
    dockerfile = "# c\nARG A\nFROM a\n\nRUN x \\\n  # c\n  y\nRUN <<E\nz\nE\nRUN w\n"
    assert [line_of_step(dockerfile, step) for step in (1, 2, 3, 4, 5)] == [2, 3, 5, 8, 11]


def test_digest_depends_on_what_an_image_depends_on(tmp_path: Path) -> None:
    made = context(tmp_path, "FROM a\n")
    (tmp_path / "file").write_text("one")
    seen = {made.digest({})}
    os.utime(tmp_path / "Dockerfile", (1, 1))
    assert made.digest({}) in seen
    assert made.digest({"arg": "1"}) not in seen
    for change in (
        lambda: (tmp_path / "Dockerfile").chmod(0o755),
        lambda: (tmp_path / "file").write_text("other"),
        lambda: (tmp_path / "link").symlink_to("file"),
        lambda: (tmp_path / "empty").mkdir(),
    ):
        change()
        assert made.digest({}) not in seen
        seen.add(made.digest({}))


def test_things_that_exist_only_once() -> None:
    merged = {
        "services": {
            "main": {"container_name": "fixed", "ports": [{"published": "8080", "protocol": "tcp"}, {"target": 1}]},
            "host": {"network_mode": "host"},
        },
        "networks": {
            "default": {"name": "p_default"},
            "own": {"name": "p_own", "ipam": {"config": [{"subnet": "10.9.0.0/24"}]}},
            "far": {"name": "far", "external": True},
            "named": {"name": "shared"},
        },
        "volumes": {"data": {"name": "p_data"}, "named": {"name": "all"}},
    }
    assert exclusive_resources(merged, "p") == [
        "container-fixed",
        "host-network",
        "networks-shared",
        "port-8080-tcp",
        "subnet-10.9.0.0/24",
        "volumes-all",
    ]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            " Network p-1_default  Creating\n Container p-1-web-1  Started\n Container p-1-web-1  Waiting\n"
            "container p-1-web-1 is unhealthy\n\x1b[2Kweb-1  | broken inside\n",
            "f: not up: service web is unhealthy\n    web-1  | broken inside",
        ),
        (
            " Container p-1-my-db-1  Starting\nError response from daemon: failed on endpoint p-1-my-db-1 (1f): "
            "listen tcp4 0.0.0.0:80: bind: address already in use\n",
            "f: not up: failed on endpoint service my-db (1f): listen tcp4 0.0.0.0:80: bind: address already in use"
            "; free it, or let Docker choose one",
        ),
        ("", "f: not up: no reason given"),
    ],
    ids=["unhealthy", "port", "silent"],
)
def test_reason_of_compose_is_told_without_its_progress(output: str, said: str) -> None:
    assert explain("f: not up", output, "p-1") == said


def test_build_of_compose_is_told_without_what_every_build_says() -> None:
    output = (
        "#1 [web internal] load .dockerignore\n#1 DONE 0.1s\n\n#2 [web 1/2] RUN make\n#2 0.9 why\nfailed to solve: no\n"
    )
    said = "f: web could not be built\n    #2 [web 1/2] RUN make\n    #2 0.9 why\n    failed to solve: no"
    assert explain_build("f: web could not be built", output) == said


@pytest.mark.parametrize(
    ("service", "user", "workdir"),
    [({}, "bob", "/src"), ({"user": "0", "working_dir": "/var"}, "0", "/var"), ({"user": 7}, "7", "/src")],
)
def test_the_file_goes_over_the_image_of_main(service: dict[str, object], user: str, workdir: str) -> None:
    image = ImageFacts("image", user="bob", workdir="/src", entrypoint=("/enter",))
    assert as_service(image, service) == ImageFacts("image", user=user, workdir=workdir, entrypoint=("/enter",))
    own = {**service, "entrypoint": ["sh", "-c", "echo $$1"], "command": ["a$$"]}
    assert as_service(image, own).entrypoint == ("sh", "-c", "echo $1")
    assert as_service(image, own).command == ("a$",)
    for idle in (["sh", "-c", "sleep infinity"], ["tail", "-f", "/dev/null"], ["sleep", "infinity"]):
        assert as_service(image, {"command": idle}).command == ()


def test_what_an_image_says_of_its_health_check_is_read() -> None:
    assert _healthcheck({}) is _healthcheck({"Healthcheck": {"Test": ["NONE"]}}) is None
    times = {"Interval": 60_500_000_000, "Timeout": 0, "StartPeriod": 1_000_000_000, "Retries": 2}
    shell = {"Healthcheck": {"Test": ["CMD-SHELL", "a b"], **times}, "Shell": ["/bin/bash", "-c"]}
    expected = ImageHealthcheck(("/bin/bash", "-c", "a b"), interval_sec=60.5, start_period_sec=1.0, retries=2)
    assert _healthcheck(shell) == expected
    assert expected.limit_sec == 122.0
    assert _healthcheck({"Healthcheck": {"Test": ["CMD", "a", "b"]}}) == ImageHealthcheck(("a", "b"))


@pytest.mark.parametrize(
    ("info", "limits"),
    [
        ({"CgroupDriver": "cgroupfs", "CgroupVersion": "1"}, True),
        ({"CgroupDriver": "systemd", "CgroupVersion": "2", "Rootless": True, "BuildahVersion": "1"}, True),
        ({"CgroupDriver": "cgroupfs", "CgroupVersion": "1", "Rootless": True, "BuildahVersion": "1"}, False),
        ({"CgroupDriver": "none", "CgroupVersion": "1"}, False),
    ],
    ids=["root", "podman-rootless-v2", "podman-rootless-v1", "docker-rootless"],
)
def test_limits_that_an_engine_cannot_keep_are_noted(info: dict[str, object], limits: bool) -> None:
    facts = engine_facts(info, {"bridge"})
    notes = notes_for(SandboxSpec("x", limits=Limits(memory_mb=64)), facts)
    assert facts.is_podman is ("BuildahVersion" in info)
    assert notes_for(SandboxSpec("x"), facts) == []
    assert bool(notes) is not limits
    assert all("memory_mb are not enforced" in note for note in notes)
    starter = Starter(SimpleNamespace(), SimpleNamespace(), facts, run="r", networks=SimpleNamespace())  # type: ignore[arg-type]
    assert (starter.snapshots is not None) is limits


@pytest.mark.parametrize(
    "change",
    [{"services": {"main": {}, "x": {"network_mode": "host"}}}, {"networks": {"far": {"external": True}}}],
)
def test_task_without_network_may_not_have_one_of_its_own(change: dict[str, object]) -> None:
    merged = {"services": {"main": {}}, **change}
    with pytest.raises(UnsupportedError, match="without network"):
        override_file(
            merged, SandboxSpec("x", network=NO_NETWORK), ENGINE, labels={}, images={}, workdir="/", lease_sec=1
        )


def _into(target: bytearray):  # type: ignore[no-untyped-def]
    async def sink(data: bytes) -> None:
        target.extend(data)

    return sink


@pytest.mark.parametrize(
    ("config", "is_here"),
    [
        ({"Subnet": "127.0.0.0/8", "Gateway": "127.0.0.1"}, True),
        ({"Subnet": "127.0.0.0/8"}, True),
        ({"Subnet": "203.0.113.0/24"}, False),
        ({"Subnet": "127.0.0.0/8", "Gateway": "203.0.113.1"}, False),
        ({}, False),
    ],
)
def test_a_bridge_is_known_as_this_machines_before_the_engine_tells_its_address(
    config: dict[str, str], is_here: bool
) -> None:
    # An engine that has made the bridge since it started lists no gateway for it until it starts again.
    networks = [{"Name": "bridge", "IPAM": {"Config": [config]}}]
    assert is_on_this_machine(networks) is is_here
