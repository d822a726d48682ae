"""Whole rollouts of compose tasks: what a task says of a service happens there."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from project import Project

pytestmark = pytest.mark.compose
COMPOSE = """
    services:
      db:
        image: debian:bookworm-slim
        command: [sleep, "600"]
        user: nobody
        working_dir: /srv
"""
#: A sidecar that has what the hooks and artifacts below are about.
SEED = """
    [environment.env]
    OF_MAIN = "x"
    [[environment.setup_commands]]
    command = 'mkdir -m 777 evidence && echo "$SEED" >evidence/seed'
    service = "db"
    user = "root"
    cwd = "/"
    env = { SEED = "seeded" }
"""
SHARED = """
    [[artifacts]]
    source = "/evidence"
    service = "db"
    exclude = ["seed"]
    [[artifacts]]
    source = "/evidence/seed"
    destination = "seed.txt"
    service = "db"
    [verifier]
    service = "db"
    user = "root"
    pytest_plugins = ["pytest_cov"]
    [[verifier.collect]]
    service = "db"
    command = 'echo "$(id -un) $(pwd) [$OF_MAIN]" >/evidence/hook'
    [[verifier.collect]]
    service = "db"
    user = 0
    command = "id -un >/evidence/root; echo broken >&2; exit 3"
    [[verifier.collect]]
    service = "db"
    command = "sleep 601"
    timeout_sec = 1
"""
#: The name of a container that does not run leads nowhere.
SEPARATE = """
    artifacts = [{ source = "/evidence", service = "db" }, "/app/done.txt"]
    [verifier]
    environment_mode = "separate"
    [[verifier.collect]]
    service = "db"
    command = "cat /evidence/seed >/evidence/collected; getent hosts main || echo stopped >/evidence/main"
    [[verifier.collect]]
    command = "test -e /app/done.txt && echo main was first >>/app/done.txt"
"""
IN_DB = """
    grep -q seeded /evidence/seed && [ ! -e /app/done.txt ] && [ "$(id -un)" = root ] || exit 0
    # The hook that took too long is no more.
    grep -l '[s]leep.601' /proc/[0-9]*/cmdline && exit 0
    echo 1 >/logs/verifier/reward.txt
"""
IN_FRESH = """
    cat /evidence/main /evidence/collected /app/done.txt
    rm -f /logs/verifier/reward.txt
    if [ "$(cat /evidence/main /evidence/collected)" = "$(printf 'stopped\\nseeded')" ]; then
      echo 1 >/logs/verifier/reward.txt
    fi
"""


@dataclass(frozen=True)
class Ran:
    run: pytest.RunResult
    shared: Path
    separate: Path

    def notes(self, rollout: Path) -> list[str]:
        notes: list[str] = json.loads((rollout / "result.json").read_text())["notes"]
        return notes


@pytest.fixture(scope="module")
def ran(new_project: Callable[..., Project]) -> Iterator[Ran]:
    project = new_project()
    compose = {"environment/docker-compose.yaml": COMPOSE}
    project.task("tasks/separate", toml=SEPARATE + SEED, test=IN_FRESH, files=compose)
    project.task("tasks/shared", toml=SHARED + SEED, test=IN_DB, files=compose)
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    done = project.run("tasks", "--bf-sandbox=docker", "--bf-keep-sandbox=always", env={"DOCKER_HOST": host})
    separate, shared = project.rollout_dirs()
    yield Ran(done, shared, separate)
    for removal in re.findall(r"remove it with `([^`]+)`", done.stdout.str()):
        subprocess.run([*removal.split(), "--timeout", "0"], check=True, capture_output=True)


def test_both_ways_of_verifying_pass(ran: Ran) -> None:
    ran.run.assert_outcomes(passed=2)


def test_hooks_run_in_their_service_and_a_failure_is_noted(ran: Ran) -> None:
    artifacts = ran.shared / "artifacts"
    assert (artifacts / "evidence/hook").read_text() == "nobody /srv []\n"
    assert (artifacts / "evidence/root").read_text() == "root\n"
    hooks = [note for note in ran.notes(ran.shared) if note.startswith("collect hook")]
    assert hooks == [
        "collect hook in db: 'id -un >/evidence/root; echo broken >&2; exit 3' ended with status 3: broken",
        "collect hook in db: 'sleep 601' did not end within 1 s",
    ]
    assert any(note.startswith("shared: [verifier] pytest_plugins has no effect") for note in ran.notes(ran.shared))


def test_artifacts_of_a_service_are_kept_and_listed(ran: Ran) -> None:
    artifacts = ran.shared / "artifacts"
    assert not (artifacts / "evidence/seed").exists()
    assert (artifacts / "seed.txt").read_text() == "seeded\n"
    manifest = json.loads((artifacts / "manifest.json").read_text())
    assert [(entry["service"], entry["source"], entry["type"], entry["status"]) for entry in manifest] == [
        ("main", "/logs/artifacts", "directory", "empty"),
        ("db", "/evidence", "directory", "ok"),
        ("db", "/evidence/seed", "file", "ok"),
    ]


def test_a_separate_verifier_sees_what_services_had_once_main_was_stopped(ran: Ran) -> None:
    said = (ran.separate / "verifier/test-stdout.txt").read_text()
    assert said == "stopped\nseeded\ndone\nmain was first\n"
    assert not [note for note in ran.notes(ran.separate) if note.startswith("collect hook")]


def test_a_kept_sandbox_can_be_entered_although_main_was_stopped(ran: Ran) -> None:
    (entry,) = (note for note in ran.notes(ran.separate) if note.startswith("kept: "))
    match = re.search(r"docker exec -it (\S+) bash", entry)
    assert match is not None
    done = subprocess.run(["docker", "exec", match[1], "cat", "/app/done.txt"], capture_output=True, check=True)
    assert done.stdout == b"done\nmain was first\n"
