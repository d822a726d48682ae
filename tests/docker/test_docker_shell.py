"""`bf shell` with containers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from on_terminal import OnTerminal
from project import wait_for, write_task

# Whoever started the tests may have them ignore a signal, and the shell too.
BF = [
    "env",
    "--default-signal",
    sys.executable,
    "-c",
    "import sys; from pytest_benchflow.cli.main import main; sys.exit(main())",
]
TOML = '[environment]\ndocker_image = "{}"\nworkdir = "/app"\n'
COMPOSE = """\
services:
  main:
    image: debian:bookworm-slim
    command: sleep infinity
  store:
    image: debian:bookworm-slim
    command: sleep infinity
"""


def image_task(path: Path, image: str, **parts: str) -> str:
    """Write a task whose image needs no build."""
    task = write_task(path, toml=TOML.format(image), **parts)  # type: ignore[arg-type]
    (task / "environment/Dockerfile").unlink()
    return str(task)


def containers(pid: int) -> list[str]:
    words = ["docker", "ps", "-aq", "--filter", f"label=benchflow.owner_pid={pid}"]
    return subprocess.run(words, capture_output=True, check=True, text=True).stdout.split()


@pytest.mark.parametrize("image", ["debian:bookworm-slim", "bf-test/busybox:1"])
def test_interactive_shell_is_a_real_terminal_and_leaves_nothing(image: str, tmp_path: Path) -> None:
    argv = [*BF, "shell", "--sandbox", "docker", image_task(tmp_path / "hello", image), "--verify"]
    with OnTerminal(argv, env={"TERM": "xterm"}) as screen:
        screen.expect("bf-verify runs the verifier; exit ends the sandbox")
        screen.type("tty; stty size; id -un; echo $TERM-$PWD\n")
        screen.expect("/dev/pts/")
        screen.expect("33 99")
        screen.expect("agent")
        screen.expect("xterm-/app")
        screen.resize(20, 70)
        screen.type("sleep 0.5; stty size\n")
        screen.expect("20 70")
        screen.type("bash -c 'echo front-$((1 + 1)); sleep 600'\n")
        screen.expect("front-2")
        screen.type("\x03")
        screen.type("bf-verify; touch done.txt\n")
        screen.expect("reward 0")
        screen.type("bf-verify\n")
        screen.expect("reward 1")
        assert containers(screen.process.pid)
        screen.type("exit 5\n")
        assert screen.wait() == 5
        assert screen.is_as_before
        assert not containers(screen.process.pid)


def test_command_has_pipes_and_a_status(tmp_path: Path) -> None:
    task = image_task(tmp_path / "hello", "debian:bookworm-slim")
    argv = [*BF, "shell", "--sandbox=docker", task, "--solve", "--verify", "--"]
    argv += ["bash", "-c", "cat; cat done.txt; bf-verify; echo bad >&2; exit 6"]
    run = subprocess.run(argv, input="in\n", capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout, run.stderr, run.returncode) == ("in\ndone\nreward 1\n", "bad\n", 6)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_signal_ends_the_container(end: signal.Signals, tmp_path: Path) -> None:
    task = image_task(tmp_path / "hello", "debian:bookworm-slim")
    argv = [*BF, "shell", "--sandbox", "docker", task, "--", "bash", "-c", "echo up; sleep 600"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(3) == b"up\n"
        assert len(containers(process.pid)) == 1
        os.kill(process.pid, end)
        assert process.wait(30) == (143 if end is signal.SIGTERM else -9)
        wait_for(lambda: not containers(process.pid), "the end of the container", 15)


@pytest.mark.compose
def test_compose_project_has_its_services(tmp_path: Path) -> None:
    task = write_task(tmp_path / "hello", files={"environment/docker-compose.yaml": COMPOSE})
    (task / "environment/Dockerfile").unlink()
    argv = [*BF, "shell", "--sandbox", "docker", str(task), "--verify", "--"]
    argv += ["bash", "-c", "getent hosts store >/dev/null && echo reached; touch /app/done.txt; bf-verify"]
    run = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout == "reached\nreward 1\n", run.stderr
