"""kill -9 at random moments: no score is lost or given twice, nothing outlives the run, and the job can be continued.

`make test-faults` runs hundreds of seeds; a failure is repeated with `BF_FAULT_SEEDS=17:18`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from conftest import FaultyJob, some_worker, the_runner

MODES = ("one", "workers", "python")
LATEST_SEC = {"one": 2.5, "workers": 4.0, "python": 2.5, "docker": 8.0}
"""A little longer than the whole run usually takes, so that some kills come too late."""


def seeds(variable: str, usual: str) -> range:
    first, _, last = os.environ.get(variable, usual).rpartition(":")
    return range(int(first or 0), int(last))


@pytest.mark.parametrize("seed", seeds("BF_FAULT_SEEDS", "0:3"))
def test_a_kill_at_any_moment_loses_and_doubles_nothing(seed: int, faulty_job: Callable[[str], FaultyJob]) -> None:
    kill_at_random(faulty_job(MODES[seed % len(MODES)]), random.Random(seed))


@pytest.mark.docker
@pytest.mark.parametrize("seed", seeds("BF_FAULT_DOCKER_SEEDS", "0:1"))
def test_the_same_holds_for_containers(seed: int, faulty_job: Callable[[str], FaultyJob]) -> None:
    kill_at_random(faulty_job("docker"), random.Random(seed))


@pytest.mark.parametrize("n_tiny", [int(os.environ.get("BF_FAULT_TINY", "24"))])
def test_many_tiny_rollouts_are_each_scored_once_whatever_is_killed(
    n_tiny: int, faulty_job: Callable[..., FaultyJob]
) -> None:
    job = faulty_job("one", n_tiny)
    ended = job.run(kill=the_runner, after=2.0 + n_tiny / 30)
    assert not ended.left, ended.output
    job.remember_scores()
    job.check_complete(job.run())


def kill_at_random(job: FaultyJob, chance: random.Random) -> None:
    """Kill a job one to three times, then let it end, and check what it has left each time."""
    for _ in range(chance.randint(1, 3)):
        kill_worker = job.mode == "workers" and chance.random() < 0.6
        victim = some_worker(chance) if kill_worker else the_runner
        ended = job.run(kill=victim, after=chance.uniform(0.1, LATEST_SEC[job.mode]))
        assert not ended.left, ended.output
        # The kill may have come too late; a run that loses a worker goes on without it.
        if kill_worker and "gateway_bootstrap" in ended.output:
            # xdist gives up where a worker dies before it has said a word: 3, or 1 with its warnings as errors.
            assert ended.status in (1, 3), ended.output
            continue
        assert ended.status in ((0,) if kill_worker else (0, -9)), ended.output
        job.remember_scores()
        if ended.status == 0:
            job.check_complete(ended)
    job.check_complete(job.run())
