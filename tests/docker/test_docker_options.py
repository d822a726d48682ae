"""Options that only mean something to Docker, in whole runs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from project import Project, wait_for

from pytest_benchflow.sandboxes.docker.cleanup import list_leftovers

HALF = "echo 0.5 > /logs/verifier/reward.txt"
COMPOSE = "services:\n  main: {}\n  side:\n    image: bf-test/busybox:1\n    command: sleep 600\n"


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, check=True, text=True).stdout.strip()


def containers_of(rollout: str) -> list[str]:
    return docker("ps", "-a", "--filter", f"label=benchflow.rollout={rollout}", "--format", "{{.Names}}").split()


class DockerProject(Project):
    """A project whose runs use the daemon of this machine; it removes what it made there."""

    def docker_run(self, *args: str) -> pytest.RunResult:
        host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        return self.run("tasks", "--bf-sandbox=docker", *args, env={"DOCKER_HOST": host})


@pytest.fixture
def project(new_project: Callable[..., Project]) -> Iterator[DockerProject]:
    plain = new_project()
    project = DockerProject(plain.root, plain.cache)
    yield project
    for rollout in project.rollout_dirs():
        if left := containers_of(rollout.name):
            docker("rm", "-f", *left)


def sandbox_facts(rollout: Path) -> dict[str, object]:
    facts: dict[str, object] = json.loads((rollout / "sandbox.json").read_text())
    return facts


def test_a_failed_rollout_keeps_its_container_and_says_how_to_enter_and_remove_it(project: DockerProject) -> None:
    project.task("tasks/good")
    project.task("tasks/bad", test=HALF)
    done = project.docker_run("--bf-keep-sandbox=failed", "-n", "2")
    done.assert_outcomes(passed=1, failed=1)
    bad, good = project.rollout_dirs()
    (said,) = (line for line in done.outlines if "docker exec" in line)
    match = re.search(r"enter it with `(docker exec -it (\S+) bash)`, remove it with `(docker rm -f (\S+))`", said)
    assert match is not None
    assert containers_of(good.name) == []
    assert containers_of(bad.name) == [match[2]]
    assert docker("exec", match[2], "cat", "/app/done.txt") == "done"
    facts, result = sandbox_facts(bad), json.loads((bad / "result.json").read_text())
    assert facts["id"] == match[2]
    assert match[1] in str(facts["notes"])
    assert match[1] in str(result["notes"])
    docker(*match[3].split()[1:])
    assert containers_of(bad.name) == []


def test_a_rollout_that_passed_keeps_its_container_only_always(project: DockerProject) -> None:
    project.task("tasks/good")
    project.docker_run("--bf-keep-sandbox=always").assert_outcomes(passed=1)
    (name,) = containers_of(project.rollout_dir().name)
    assert name.startswith("bf-kept-")
    # Another run sweeps what is left of dead ones, and leaves this.
    project.docker_run().assert_outcomes(passed=1)
    assert docker("exec", name, "cat", "/app/done.txt") == "done"


def test_an_interrupted_rollout_leaves_nothing(project: DockerProject) -> None:
    project.task("tasks/slow", solve="touch started; sleep 300")
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    words = ("tasks", "--bf-sandbox=docker", "--bf-keep-sandbox=always")
    process = project.start(*words, env={"DOCKER_HOST": host})
    try:
        wait_for(lambda: project.rollout_dirs(), "the rollout")
        name = project.rollout_dir().name
        wait_for(lambda: (project.rollout_dir() / "sandbox.json").exists(), "the sandbox")
        assert len(containers_of(name)) == 1
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not containers_of(name), "the end of the container")


def test_the_agents_sandbox_is_kept_where_the_verifier_has_its_own(project: DockerProject) -> None:
    toml = '[verifier]\nenvironment_mode = "separate"\n[verifier.environment]\n'
    project.task("tasks/apart", toml=toml, test=HALF)
    project.docker_run("--bf-keep-sandbox=failed").assert_outcomes(failed=1)
    rollout = project.rollout_dir()
    (name,) = containers_of(rollout.name)
    assert docker("exec", name, "cat", "/app/done.txt") == "done"
    assert containers_of(f"{rollout.name}-verifier") == []


def test_a_kept_compose_project_is_removed_with_one_command(project: DockerProject) -> None:
    test = f"(sleep 600 >/dev/null 2>&1 &); {HALF}"
    project.task("tasks/two", files={"environment/docker-compose.yaml": COMPOSE}, test=test)
    done = project.docker_run("--bf-keep-sandbox=failed")
    done.assert_outcomes(failed=1)
    rollout = project.rollout_dir()
    assert len(containers_of(rollout.name)) == 2
    left = [item for item in asyncio.run(list_leftovers(everything=True)) if item.rollout == rollout.name]
    assert {item.kind for item in left if item.owner.endswith("kept on purpose")} == {"container", "network"}
    assert not any(item.abandoned for item in left)
    (said,) = (line for line in done.outlines if "docker exec" in line)
    match = re.search(r"docker exec -it (\S+) bash`, remove it with `(docker compose -p \S+ down --volumes)`", said)
    assert match is not None
    assert docker("exec", match[1], "cat", "/app/done.txt") == "done"
    assert "sleep" not in docker("exec", match[1], "bash", "-c", "cat /proc/[0-9]*/comm")
    docker(*match[2].split()[1:])
    assert containers_of(rollout.name) == []


@pytest.mark.compose
def test_a_verifier_does_not_wait_for_what_the_kept_sandbox_of_its_agent_has(project: DockerProject) -> None:
    compose = f"services:\n  main:\n    container_name: bf-taken-{os.getpid()}\n"
    toml = '[verifier]\nenvironment_mode = "separate"\n'
    test = "echo 1 > /logs/verifier/reward.txt"
    project.task("tasks/one", files={"environment/docker-compose.yaml": compose}, toml=toml, test=test)
    project.docker_run().assert_outcomes(passed=1)
    done = project.docker_run("--bf-keep-sandbox=failed")
    done.assert_outcomes(errors=1)
    assert f"container-bf-taken-{os.getpid()} is taken by the sandbox" in done.stdout.str()


def test_dockerfiles_stand_on_another_base_image(project: DockerProject) -> None:
    base, mark = f"bf-other-base:{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    file = f"FROM debian:bookworm-slim\nRUN echo {mark} > /etc/base\n"
    subprocess.run(["docker", "build", "-q", "-t", base, "-"], input=file.encode(), check=True, capture_output=True)
    test = f"[ $(cat /app/base) = {mark} ] && echo 1 > /logs/verifier/reward.txt"
    # A prebuilt image stands on the old base, so it is not used.
    toml = '[environment]\ndocker_image = "debian:bookworm-slim"\n'
    dockerfile = "FROM debian:bookworm-slim AS one\nFROM one\nWORKDIR /app\nRUN cp /etc/base /app/base\n"
    project.task("tasks/t", dockerfile=dockerfile, test=test, toml=toml)
    try:
        project.docker_run(f"--bf-base-image-override={base}").assert_outcomes(passed=1)
    finally:
        built = docker("images", "--filter", f"since={base}", "--filter", "reference=pytest-benchflow", "-q").split()
        ours = [image for image in set(built) if mark in docker("history", "--no-trunc", image)]
        docker("rmi", "-f", *ours, base)


def test_a_task_without_a_dockerfile_is_told_that_its_base_stays(project: DockerProject) -> None:
    task = project.task("tasks/t", toml='[environment]\ndocker_image = "debian:bookworm-slim"\nworkdir = "/app"\n')
    (task / "environment/Dockerfile").unlink()
    done = project.docker_run("--bf-base-image-override=debian:trixie")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["note: --bf-base-image-override has no effect on tasks without a Dockerfile"])


def test_files_of_a_dockerfile_may_come_from_a_context_root(project: DockerProject) -> None:
    mark = uuid.uuid4().hex
    project.write({"shared/lib/mark": mark})
    dockerfile = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY lib /app/\n"
    test = f"[ $(cat /app/mark) = {mark} ] && echo 1 > /logs/verifier/reward.txt"
    project.task("tasks/t", dockerfile=dockerfile, test=test)
    before = set(docker("images", "-q", "pytest-benchflow").split())
    project.docker_run("--bf-context-root=shared").assert_outcomes(passed=1)
    new = set(docker("images", "-q", "pytest-benchflow").split()) - before
    ours = [image for image in new if docker("run", "--rm", image, "sh", "-c", "cat /app/mark || true") == mark]
    assert len(ours) == 1
    docker("rmi", "-f", *ours)


def test_the_network_is_an_option(project: DockerProject) -> None:
    project.task("tasks/t", test=HALF)
    project.docker_run("--bf-docker-network=host", "--bf-keep-sandbox=failed").assert_outcomes(failed=1)
    (name,) = containers_of(project.rollout_dir().name)
    assert docker("inspect", "-f", "{{.HostConfig.NetworkMode}}", name) == "host"


def test_a_network_that_is_not_there_is_one_error_before_anything_starts(project: DockerProject) -> None:
    project.task("tasks/t")
    done = project.docker_run("--bf-docker-network=nowhere")
    assert done.ret != 0
    text = done.stdout.str() + done.stderr.str()
    assert "Docker has no network 'nowhere'; it has " in text
    assert "change --bf-docker-network or BF_DOCKER_NETWORK" in text
    assert not project.rollout_dirs()
