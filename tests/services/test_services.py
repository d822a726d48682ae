"""Services in a sandbox: found by name, started, healthy before the agent comes, loud when they are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_sandbox import FakeSandbox, failed, ok
from project import Project

from pytest_benchflow.core.errors import BadValue, SandboxError
from pytest_benchflow.services import (
    SERVICES,
    ServiceConfig,
    ServiceRegistry,
    build_service_hooks,
    detect_services_from_dockerfile,
    register_service,
)

CLOCK = ServiceConfig(
    "clock", "python3", 9107, "/data/clock.db", command="exec python3 -m http.server 9107", health_path="/"
)

CONFTEST = """
from pytest_benchflow.services import ServiceConfig
from dataclasses import replace


def pytest_bf_register_services(registry):
    registry.register(ServiceConfig(
        "clock", "python3", 9107, "/data/clock.db", health_path="/",
        command="cd /etc && exec python3 -m http.server 9107",
    ))
    registry.register(ServiceConfig("mute", "sleep", 9108, "/data/m.db", command="sleep 60", start_timeout_sec=1))
    registry.register(ServiceConfig("absent", "no-such-program", 9109, "/data/a.db"))


def pytest_bf_modify_config(config, task):
    return replace(config, services=[task.short_name])
"""


def test_known_services_are_found_by_name() -> None:
    assert [(service.name, service.port) for service in ServiceRegistry().all_of(["gmail", "gdrive"])] == [
        ("gmail", 9001),
        ("gdrive", 9005),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["gmial"], "unknown service 'gmial'; did you mean gmail?"),
        (["gmail", ServiceConfig("mine", "mine", 9001, "/data/x.db")], "both use port 9001"),
    ],
)
def test_what_cannot_run_is_refused(given: list[str | ServiceConfig], said: str) -> None:
    with pytest.raises(BadValue, match=said):
        ServiceRegistry().all_of(given)


@pytest.mark.parametrize(("port", "path"), [(0, "/health"), (70000, "/health"), (80, "health")])
def test_values_that_make_no_sense_are_refused(port: int, path: str) -> None:
    with pytest.raises(BadValue):
        ServiceRegistry().register(ServiceConfig("x", "x", port, "/data/x.db", path))


def test_a_registered_service_is_known_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SERVICES, "notes", SERVICES["gmail"])
    service = register_service("notes", "notes-server", 9200, "/data/notes.db", description="notes")
    assert ServiceRegistry().get("notes") is service


def test_services_are_detected_in_a_dockerfile(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    environment.mkdir()
    (environment / "Dockerfile").write_text("FROM x\nRUN pip install claw-gmail claw-gcal\n")
    assert [service.name for service in detect_services_from_dockerfile(tmp_path)] == ["gmail", "gcal"]
    assert detect_services_from_dockerfile(tmp_path / "none") == []


async def test_a_hook_starts_and_waits() -> None:
    sandbox = FakeSandbox()
    (hook,) = build_service_hooks([CLOCK])
    await hook(sandbox)
    start, wait = sandbox.commands
    assert "http.server" in start
    assert "/dev/tcp/127.0.0.1/9107" in wait
    assert build_service_hooks([]) == []


async def test_a_service_that_cannot_start_is_an_error() -> None:
    (hook,) = build_service_hooks([CLOCK])
    with pytest.raises(SandboxError, match="could not start service 'clock': no python3"):
        await hook(FakeSandbox(answer=lambda cmd: failed(127, "no python3") if "setsid" in cmd else ok()))


def test_services_are_up_before_the_agent_and_failures_are_told(project: Project) -> None:
    project.write({"conftest.py": CONFTEST})
    for name in ("clock", "mute", "absent"):
        solve = "exec 3<>/dev/tcp/127.0.0.1/9107 && echo done > /app/done.txt"
        project.task(f"tasks/{name}", solve=solve, toml='[environment]\nnetwork_mode = "no-network"\n')
    done = project.run("tasks")
    done.assert_outcomes(passed=1, errors=2)
    done.stdout.fnmatch_lines_random(
        [
            "*healthcheck error in start: service 'mute' did not answer /health on port 9108 in 1 s*",
            "*healthcheck error in start: could not start service 'absent': no-such-program is not in the image*",
        ]
    )
