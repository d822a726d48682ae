"""A daemon that is reached over TCP, plain or encrypted, by address or by context."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import own_daemon
import pytest
from own_daemon import Daemon
from project import Project

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.sandboxes.docker.backend import DockerBackend
from pytest_benchflow.sandboxes.docker.client import Address, daemon_answers

pytestmark = pytest.mark.skipif(not own_daemon.can_run(), reason="a daemon of our own needs dockerd and root")
SPEC = SandboxSpec("remote", docker_image=own_daemon.IMAGE)
TOML = f'[environment]\ndocker_image = "{own_daemon.IMAGE}"\nworkdir = "/app"\n'


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    own_daemon.make_certificates(directory)
    return directory


@pytest.fixture(scope="module")
def daemon(certificates: Path) -> Iterator[Daemon]:
    files = {"tlscacert": "ca.pem", "tlscert": "cert.pem", "tlskey": "key.pem"}
    options = [f"--{option}={certificates / name}" for option, name in files.items()]
    with own_daemon.running("--host", f"tcp://127.0.0.1:{own_daemon.TLS_PORT}", "--tlsverify", *options) as daemon:
        yield daemon


@pytest.fixture
def plain(daemon: Daemon) -> Iterator[Address]:
    with own_daemon.forwarded(daemon.connect_unix) as port:
        yield Address(f"tcp://127.0.0.1:{port}")


@pytest.fixture
def encrypted(daemon: Daemon, certificates: Path) -> Iterator[Address]:
    with own_daemon.forwarded(daemon.connect_tls) as port:
        yield Address(f"tcp://127.0.0.1:{port}", certificates)


@pytest.fixture(params=["plain", "encrypted"])
def address(request: pytest.FixtureRequest) -> Address:
    found: Address = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def context(encrypted: Address, certificates: Path, tmp_path: Path) -> Path:
    """Give a configuration of the docker command whose current context is the encrypted daemon."""
    (tmp_path / "config.json").write_text('{"currentContext": "far"}')
    meta, tls = tmp_path / "contexts/meta/abc", tmp_path / "contexts/tls/abc/docker"
    meta.mkdir(parents=True)
    tls.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Name": "far", "Endpoints": {"docker": {"Host": encrypted.url}}}))
    for name in ("ca.pem", "cert.pem", "key.pem"):
        shutil.copy(certificates / name, tls)
    return tmp_path


async def test_everything_goes_over_the_connection(daemon: Daemon, address: Address, tmp_path: Path) -> None:
    backend = DockerBackend(address=address)
    await backend.preflight()
    sandbox = backend.create(SPEC)
    await sandbox.start()
    (tmp_path / "in").write_bytes(b"x" * 9_000_000)
    await sandbox.upload_file(tmp_path / "in", "/file")
    assert (await sandbox.exec("wc -c </file")).stdout.strip() == "9000000"
    await sandbox.download_file("/file", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()
    await backend.aclose()
    assert not daemon.containers()


async def test_input_ends_while_the_output_goes_on(address: Address) -> None:
    backend = DockerBackend(address=address)
    await backend.preflight()
    sandbox = backend.create(SPEC)
    await sandbox.start()
    process = await sandbox.open_process(["sh", "-c", "cat; sleep 0.3; head -c 5000000 /dev/zero; exit 7"])
    await process.write(b"y" * 3_000_000)
    await process.close_stdin()
    got = 0
    async with asyncio.timeout(30):
        while data := await process.read():
            got += len(data)
        assert await process.wait() == 7
    assert got == 8_000_000
    assert (await sandbox.exec("wc -c", stdin=b"z" * 500_000)).stdout.strip() == "500000"
    await backend.aclose()


async def test_fast_sender_waits_for_a_slow_reader(encrypted: Address) -> None:
    backend = DockerBackend(address=encrypted)
    await backend.preflight()
    sandbox = backend.create(SPEC)
    await sandbox.start()
    process = await sandbox.open_process(["sh", "-c", "head -c 80000000 /dev/zero; touch /sent"])
    await asyncio.sleep(1.5)
    assert (await sandbox.exec("test -e /sent")).return_code == 1
    got = 0
    while data := await process.read():
        got += len(data)
    assert got == 80_000_000
    await backend.aclose()


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (None, r"HTTP request to an HTTPS server\); set DOCKER_TLS_VERIFY=1"),
        ([], r"certificate verify failed.*; check the certificates in "),
        (["ca.pem"], r"(certificate required|bad certificate).*; check the certificates in "),
    ],
    ids=["plain", "no-authority", "no-certificate"],
)
async def test_missing_certificates_are_said(
    encrypted: Address, certificates: Path, tmp_path: Path, files: list[str] | None, reason: str
) -> None:
    for name in files or ():
        shutil.copy(certificates / name, tmp_path)
    address = replace(encrypted, tls_dir=None if files is None else tmp_path)
    with pytest.raises(SandboxError, match=reason):
        await DockerBackend(address=address).preflight()


async def test_certificates_that_are_meant_for_the_web_do_not_matter(
    encrypted: Address, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(certificates / "cert.pem"))
    backend = DockerBackend(address=encrypted)
    await backend.preflight()
    await backend.aclose()


def test_run_with_an_encrypted_daemon(
    new_project: Callable[..., Project], daemon: Daemon, encrypted: Address, certificates: Path
) -> None:
    project = new_project()
    project.task("tasks/t", toml=TOML)
    variables = {"DOCKER_HOST": encrypted.url, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(certificates)}
    project.run("tasks", "--bf-sandbox=docker", env=variables).assert_outcomes(passed=1)
    assert not daemon.containers()


def test_run_with_a_context(new_project: Callable[..., Project], daemon: Daemon, context: Path) -> None:
    project = new_project()
    project.task("tasks/t", toml=TOML)
    variables = {"DOCKER_HOST": "", "DOCKER_CONFIG": str(context)}
    project.run("tasks", "--bf-sandbox=docker", env=variables).assert_outcomes(passed=1)
    assert not daemon.containers()


def test_context_is_asked_whether_it_answers(context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(context))
    assert daemon_answers()
    shutil.rmtree(context / "contexts/tls")
    assert not daemon_answers()


async def test_silent_runner_loses_its_container(
    daemon: Daemon, plain: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_benchflow.sandboxes.docker.containers.REMOTE_LEASE_SEC", 1)
    backend = DockerBackend(address=plain)
    await backend.preflight()
    alive, silent = backend.create(SPEC), backend.create(SPEC)
    await asyncio.gather(alive.start(), silent.start())
    for task in silent._container.channel._tasks[1:]:  # type: ignore[union-attr]
        task.cancel()
    async with asyncio.timeout(60):
        while (names := daemon.docker("ps", "-a", "--format", "{{.Names}}").stdout.decode().split()) != [alive.id]:
            assert alive.id in names
            await asyncio.sleep(0.1)
    assert (await alive.exec("echo on")).stdout == "on\n"
    await backend.aclose()
