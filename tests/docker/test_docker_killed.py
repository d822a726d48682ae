"""A run that is killed leaves nothing in the daemon."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest
from project import Project, wait_for

COUNT = 16
WITHIN_SEC = 10
KINDS = {"container": ("ps", "-aq", "--no-trunc"), "network": ("network", "ls", "-q"), "volume": ("volume", "ls", "-q")}
GUARDED = (
    '[environment]\ndocker_image = "bf-test/busybox:1"\nnetwork_mode = "allowlist"\nallowed_hosts = ["one.example"]\n'
)
TOML = '[environment]\ndocker_image = "bf-test/busybox:1"\n'

#: Dies when its container is made and not yet started.
BETWEEN = """
import os
import signal
from pytest_benchflow.sandboxes.docker import container


async def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)


container.attach = die
"""

#: Something keeps the engine from telling PID 1 of the end: here another process has the connection too.
HELD = """
import os
import signal
import subprocess
from pytest_benchflow.sandboxes.docker import channel, container, containers


class Held(channel.Channel):
    async def open(self, lease_sec):
        descriptor = self._connection._writer.transport.get_extra_info("socket").fileno()
        subprocess.Popen(["sleep", "30"], pass_fds=[descriptor], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        {opened}


container.Channel = Held
containers.LOCAL_LEASE_SEC = 2
"""

#: When a runner is killed, and how its conftest brings that about; none of these ends says so to PID 1.
STAGES = {
    "before it is attached": """
import os
import signal
from pytest_benchflow.sandboxes.docker import channel, container


async def start_and_die(engine, container_id, name):
    await engine.finish(lambda client: client.start(container_id))
    os.kill(os.getpid(), signal.SIGKILL)


channel.FIRST_LINE_SEC = 1
container.attach = start_and_die
""",
    "between two lines of the boot": HELD.format(
        opened="""write = self._connection.write

        async def first_line(data):
            await write(data.partition(b"\\n")[0] + b"\\n")
            os.kill(os.getpid(), signal.SIGKILL)

        self._connection.write = first_line
        await super().open(lease_sec)"""
    ),
    "while an agent works": HELD.format(opened="await super().open(lease_sec)")
    + """

def pytest_bf_rollout_phase(rollout, phase):
    if phase == "execute":
        os.kill(os.getpid(), signal.SIGKILL)
""",
}


def labelled(pid: int) -> dict[str, list[str]]:
    """Return everything in the daemon that a process has made, images too."""
    kinds = {**KINDS, "image": ("images", "-q")}
    return {
        kind: found
        for kind, words in kinds.items()
        if (
            found := subprocess.run(
                ["docker", *words, "--filter", f"label=benchflow.owner_pid={pid}"], capture_output=True, check=True
            ).stdout.decode().split()
        )
    }  # fmt: skip


def test_nothing_is_left_of_sixteen_containers_after_kill_9(new_project: Callable[..., Project]) -> None:
    project = new_project()
    for number in range(COUNT):
        project.task(f"tasks/t{number:02}", toml=TOML, solve="touch /app/asleep; sleep 600")
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    options = ("--bf-sandbox=docker", f"--bf-concurrency={COUNT}")
    runner = project.start("tasks", *options, env={"DOCKER_HOST": host})
    try:
        wait_for(
            lambda: len(list(project.root.glob("jobs/*/*/sandbox.json"))) == COUNT or runner.poll() is not None,
            "the rollouts' start",
            90,
        )
        assert runner.poll() is None, (project.root / "pytest.log").read_text()
        assert len(labelled(runner.pid)["container"]) == COUNT
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        wait_for(lambda: not labelled(runner.pid), "the end of all that the run made", WITHIN_SEC)
    finally:
        runner.kill()
        runner.wait()
        if left := labelled(runner.pid).get("container"):
            subprocess.run(["docker", "rm", "-f", *left], capture_output=True, check=False)


def test_the_network_of_a_killed_run_goes_when_the_next_one_starts(new_project: Callable[..., Project]) -> None:
    project = new_project()
    project.task("tasks/guarded", toml=GUARDED, solve="[ -e /again ] || sleep 600")
    environment = {"DOCKER_HOST": os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")}
    killed = project.start("tasks", "--bf-sandbox=docker", env=environment)
    try:
        wait_for(lambda: list(project.root.glob("jobs/*/*/sandbox.json")) or killed.poll() is not None, "its start", 90)
        assert killed.poll() is None, (project.root / "pytest.log").read_text()
    finally:
        killed.kill()
        killed.wait()
    wait_for(lambda: "container" not in labelled(killed.pid), "the end of its container", WITHIN_SEC)
    assert set(labelled(killed.pid)) == {"network"}
    (project.root / "tasks/guarded/solution/solve.sh").write_text("true\n")
    project.run("tasks", "--bf-sandbox=docker", env=environment)
    assert labelled(killed.pid) == {}


def test_a_container_that_a_killed_run_never_started_goes_when_the_next_one_starts(
    new_project: Callable[..., Project],
) -> None:
    project = new_project()
    project.task("tasks/a", toml=TOML)
    project.write({"conftest.py": BETWEEN})
    environment = {"DOCKER_HOST": os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")}
    killed = project.start("tasks", "--bf-sandbox=docker", env=environment)
    assert killed.wait(60) == -signal.SIGKILL
    assert set(labelled(killed.pid)) == {"container"}
    (project.root / "conftest.py").unlink()
    project.run("tasks", "--bf-sandbox=docker", env=environment).assert_outcomes(passed=1)
    assert labelled(killed.pid) == {}


@pytest.mark.parametrize("stage", STAGES)
def test_a_container_ends_that_is_not_told_of_the_end_of_its_runner(
    stage: str, new_project: Callable[..., Project]
) -> None:
    project = new_project()
    project.task("tasks/a", toml=TOML)
    project.write({"conftest.py": STAGES[stage]})
    environment = {"DOCKER_HOST": os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")}
    killed = project.start("tasks", "--bf-sandbox=docker", env=environment)
    assert killed.wait(60) == -signal.SIGKILL, (project.root / "pytest.log").read_text()
    assert labelled(killed.pid)
    wait_for(lambda: not labelled(killed.pid), "the end of its container", WITHIN_SEC)
