"""A Docker daemon that is killed and started again in the middle of a job: told as it is, and the job goes on."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import own_daemon
import pytest
from own_daemon import Daemon
from project import Project

from conftest import LONG, FaultyJob

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not own_daemon.can_run(), reason="a daemon of our own needs dockerd and root"),
]
TOML = f'[environment]\ndocker_image = "{own_daemon.IMAGE}"\nworkdir = "/app"\n'


@pytest.mark.parametrize("seed", range(10 if LONG else 1))
def test_a_daemon_that_comes_back_costs_only_what_was_running(seed: int, new_project: Callable[..., Project]) -> None:
    chance, project = random.Random(seed), new_project(f"daemon-{seed}")
    for number in range(6):
        project.task(f"tasks/t{number}", toml=TOML, solve=f"sleep 0.{number}\necho done > /app/done.txt")
    with own_daemon.running() as daemon:
        job = FaultyJob(project, "docker", variables={"DOCKER_HOST": daemon.unix})
        ended = job.run(kill=lambda runner: restart(daemon, chance), after=chance.uniform(1.0, 5.0))
        assert not ended.left, ended.output
        assert ended.status in (0, 1, 4), ended.output  # 4: there was no daemon when the run began
        assert "Traceback" not in ended.output
        if ended.status == 1:
            assert " sandbox" in ended.output
        job.remember_scores()
        job.check_complete(job.run())
        assert not daemon.containers()


def restart(daemon: Daemon, chance: random.Random) -> None:
    daemon.stop(chance.choice([signal.SIGTERM, signal.SIGKILL]))
    daemon.start()
