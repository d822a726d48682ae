"""Choosing a sandbox by name, and saying why none can start."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.sandboxes import BackendOption, SandboxRegistry, parse_backend_options, registry
from pytest_benchflow.sandboxes.local.backend import LocalBackend, explain
from pytest_benchflow.sandboxes.local.host import Host
from pytest_benchflow.sandboxes.local.layers import LayerStore


def test_local_is_always_there() -> None:
    assert "local" in SandboxRegistry().names()
    assert isinstance(SandboxRegistry().create("local"), LocalBackend)


def test_a_near_miss_is_hinted() -> None:
    with pytest.raises(UsageError, match=r"^unknown sandbox 'loacl'; did you mean local\?$"):
        SandboxRegistry().create("loacl")


def test_a_factory_can_be_registered() -> None:
    registry = SandboxRegistry()
    backend = LocalBackend()
    registry.register("mine", lambda: backend)
    assert registry.create("mine") is backend
    assert "mine" in registry.names()


@pytest.mark.parametrize("name", ["auto", "", "a b", "x=y"])
def test_names_that_cannot_be_typed_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a sandbox"):
        SandboxRegistry().register(name, LocalBackend)


def test_installed_packages_add_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("third", "pytest_benchflow.sandboxes.local:LocalBackend", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]).select(group=group))
    assert isinstance(SandboxRegistry().create("third"), LocalBackend)


def test_a_backend_that_cannot_be_loaded_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("third", "no_such_package:Backend", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]).select(group=group))
    with pytest.raises(UsageError, match=r"^the sandbox 'third' cannot be loaded from no_such_package:Backend: "):
        SandboxRegistry().create("third")


class WithOptions(LocalBackend):
    """A backend that shows the values of its options."""

    options = (
        BackendOption("size", "machines to rent", type=int, default="1"),
        BackendOption("speed", "how fast", type=float),
        BackendOption("zone", "where", choices=("east", "west")),
    )

    def configure(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)


def with_options(**values: str) -> WithOptions:
    registry = SandboxRegistry({"mine": values})
    registry.register("mine", WithOptions)
    backend = registry.create("mine")
    assert isinstance(backend, WithOptions)
    return backend


def test_a_backend_gets_its_options_and_their_defaults() -> None:
    assert with_options().values == {"size": "1"}
    assert with_options(zone="west", size="7", speed="1.5").values == {"size": "7", "speed": "1.5", "zone": "west"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sise": "1"}, "unknown option 'sise' of the sandbox mine; did you mean size?"),
        ({"x": "1"}, "unknown option 'x' of the sandbox mine; known: size, speed, zone"),
        ({"size": "1.5"}, "option mine.size is '1.5'; expected a whole number"),
        ({"speed": "fast"}, "option mine.speed is 'fast'; expected a number"),
        ({"zone": "north"}, "option mine.zone is 'north'; expected east or west"),
        (
            {"zone": "", "size": "two"},
            "option mine.zone is ''; expected east or west · option mine.size is 'two'; expected a whole number",
        ),
    ],
)
def test_options_that_cannot_be_used_are_one_error(values: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        with_options(**values)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dokcer": {"network": "host"}}, "options for an unknown sandbox 'dokcer'; did you mean docker?"),
        ({"local": {"netwrk": "host"}}, "unknown option 'netwrk' of the sandbox local; did you mean network?"),
    ],
)
def test_options_for_nobody_are_refused(options: dict[str, dict[str, str]], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        SandboxRegistry(options).create("local")
    assert str(caught.value) == message


def own_registry() -> SandboxRegistry:
    registry = SandboxRegistry({"mine": {"zone": "east", "speed": "1"}})
    registry.register("mine", WithOptions)
    return registry


def test_options_are_read_as_users_write_them() -> None:
    registry = own_registry()
    options = parse_backend_options(["mine.size=2", "docker.network=a=b", "mine.zone=east", "mine.zone=west"], registry)
    assert options == {"mine": {"size": "2", "zone": "west"}, "docker": {"network": "a=b"}}
    registry.add_options(options)
    backend = registry.create("mine")
    assert isinstance(backend, WithOptions)
    assert backend.values == {"size": "2", "zone": "west", "speed": "1"}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["network"], "'network' is not an option of a sandbox; write BACKEND.NAME=VALUE"),
        (["network=host"], "'network=…' is not an option of a sandbox; write BACKEND.NAME=VALUE"),
        (["mine.=1"], "'mine.=…' is not an option of a sandbox; write BACKEND.NAME=VALUE"),
        (["mien.size=1"], "options for an unknown sandbox 'mien'; did you mean mine?"),
        (["auto.size=1"], "options for an unknown sandbox 'auto'; known: docker, local, mine"),
        (["mine.sise=1"], "unknown option 'sise' of the sandbox mine; did you mean size?"),
        (["local.size=1"], "unknown option 'size' of the sandbox local; known: network"),
        (
            ["mine.size=two", "x"],
            "'x' is not an option of a sandbox; write BACKEND.NAME=VALUE · "
            "option mine.size is 'two'; expected a whole number",
        ),
    ],
)
def test_options_that_cannot_be_read_are_one_error(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_backend_options(texts, own_registry())
    assert str(caught.value) == message


def test_options_of_a_backend_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("third", "no_such_package:Backend", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]).select(group=group))
    with pytest.raises(UsageError, match=r"^the sandbox 'third' cannot be loaded from no_such_package:Backend: "):
        parse_backend_options(["third.size=1"], SandboxRegistry())


def test_importing_the_package_loads_no_backend() -> None:
    code = (
        "import sys, pytest_benchflow.sandboxes;"
        "print([m for m in ('docker', 'ctypes', 'asyncio', 'pytest_benchflow.sandboxes.local') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


HOST = Host(privileged=False, python_prefix=None, lends_python=False, environ={}, pid=1)


@pytest.mark.parametrize(
    ("setting", "value", "advice"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=15000"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_forbidden_user_namespaces_are_explained(setting: str, value: str, advice: str, tmp_path: Path) -> None:
    path = tmp_path / setting
    path.parent.mkdir()
    path.write_text(f"{value}\n")
    error = explain("unshare: Operation not permitted", HOST, tmp_path)
    assert f"{setting.replace('/', '.')} = {value} forbids user namespaces" in error.message
    assert advice in str(error)
    assert not error.retryable


def test_another_failure_is_passed_on(tmp_path: Path) -> None:
    assert "mount: Operation not permitted" in str(explain("mount: Operation not permitted", HOST, tmp_path))


def test_a_kernel_without_overlays_for_users_is_named(tmp_path: Path) -> None:
    failure = "sandbox preflight cannot start: mount overlay on /tmp/merged (lowerdir=x): Operation not permitted"
    old = explain(failure, HOST, tmp_path, "5.4.0-216-generic")
    assert "Linux 5.4.0-216-generic lets only root mount overlays; 5.11 lets everyone" in old.message
    assert "run pytest as root, or use --bf-sandbox docker" in str(old)
    for release in ("5.11.0", "5.15.0-1-amd64", "6.1.0-55-amd64"):
        assert failure in explain(failure, HOST, tmp_path, release).message


def test_layers_depend_on_the_systems_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "installed"
    monkeypatch.setattr("pytest_benchflow.sandboxes.local.host._SYSTEM_STATE", (str(database),))
    identities = [HOST.identity()]
    for moment in (1, 2):
        database.touch()
        os.utime(database, (moment, moment))
        identities.append(HOST.identity())
    assert len({str(identity) for identity in identities}) == 3


def test_layers_long_unused_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path))
    store = LayerStore(privileged=False)
    (store.path / "old").mkdir()
    (store.path / "used").mkdir()
    for name in ("old", "used"):
        os.utime(store.path / name, (1, 1))
    assert store.has("used")

    async def build() -> None:
        async with store.building("new"):
            pass

    asyncio.run(build())
    assert sorted(path.name for path in store.path.iterdir()) == ["new", "used"]


def test_certificates_travel_and_nothing_else() -> None:
    environ = {
        "SSL_CERT_FILE": "/etc/ssl/certs/ca.crt",
        "PIP_CERT": "/root/ca.crt",
        "http_proxy": "http://proxy:3128",
        "HTTPS_PROXY": "http://me:secret@proxy:3128",
        "API_KEY": "secret",
    }
    host = Host(privileged=True, python_prefix=None, lends_python=False, environ=environ, pid=1)
    found = host.variables()
    assert {key for key in found if key not in ("PATH", "LANG")} == {"SSL_CERT_FILE"}


def test_a_lent_python_is_last_on_the_path() -> None:
    host = Host(privileged=True, python_prefix="/root/py", lends_python=True, environ={}, pid=1)
    assert host.variables()["PATH"].endswith(":/bin:/root/py/bin")


def test_a_backend_for_an_earlier_release_is_told_what_it_misses() -> None:
    class Old:
        name = "old"

    registry = SandboxRegistry()
    registry.register("old", Old)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"the sandbox 'old' has no aclose, capabilities, .*; give it every member"):
        registry.create("old")
