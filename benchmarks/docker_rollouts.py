"""Oracle rollouts in Docker beside the same work straight on the Engine API, and beside peers where they are installed.

Not called `docker`: it would hide the SDK of that name.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, median

import docker
import measure
from workloads import write_tasks

COUNT = 16
CONCURRENCY = 4
ROUNDS = 3
IMAGE = "debian:bookworm-slim"
PEERS: dict[str, list[str]] = {
    "harbor": ["harbor", "run", "-e", "docker", "-a", "oracle", "-n", str(CONCURRENCY), "-p", "tasks"],
    "bench": [
        *("bench", "eval", "run", "--sandbox", "docker", "--agent", "oracle"),
        *("--concurrency", str(CONCURRENCY), "--tasks-dir", "tasks"),
    ],
}


def rollouts(scratch: Path) -> None:
    """Print one rollout (bar 1.5 s), 16 at 4 a time (bar 1.3 × floor), CPU (bar 5 s) and memory (bar 200 MB)."""
    try:
        docker.APIClient(version="auto").close()
    except docker.errors.DockerException as error:
        print(f"no Docker daemon: {error}")
        return
    write_tasks(scratch / "tasks", COUNT)
    (scratch / "pytest.ini").write_text("[pytest]\n")
    task = scratch / "tasks" / "task-00000"
    options = ("-q", "--bf-sandbox=docker", f"--bf-concurrency={CONCURRENCY}")
    measure.pytest(str(task), *options, cwd=scratch)
    # In turns, so that a machine that gets busier is busier for both.
    floors, ones, many = [], [], []
    for number in range(ROUNDS):
        floors.append((_seconds(lambda: _floor(task)), _seconds(lambda: _floors(task))))
        ones.append(measure.pytest(str(task), *options, cwd=scratch))
        many.append(measure.pytest("tasks", *options, f"--bf-job-name=bench-{number}", cwd=scratch))
    floor_one, floor_all = (median(column) for column in zip(*floors, strict=True))
    one, wall = median(cost.wall for cost in ones), median(cost.wall for cost in many)
    cpu, rss = median(cost.cpu for cost in many), max(cost.rss_mb for cost in many)
    print(f"floor, one                     {floor_one:6.2f} s")
    print(f"one rollout, pytest included   {one:6.2f} s (bar 1.50)")
    print(f"floor, {COUNT} at {CONCURRENCY} a time          {floor_all:6.2f} s")
    print(f"{COUNT} rollouts at {CONCURRENCY} a time       {wall:6.2f} s   {wall / floor_all:.2f} × (bar 1.30)")
    print(f"CPU of our processes for {COUNT}    {cpu:6.2f} s (bar 5)")
    # The runner is the only process of ours: single containers need no helper.
    print(f"memory of the runner           {rss:6.0f} MB (bar 200)")
    print(f"seconds by phase, mean of {COUNT}:  {_phases(scratch / 'jobs' / f'bench-{ROUNDS - 1}')}")
    for name, argv in PEERS.items():
        _peer(name, argv, scratch, wall)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _floors(task: Path) -> None:
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        list(pool.map(_floor, [task] * COUNT))


def _floor(task: Path) -> None:
    """Do what a rollout cannot do without: create, start, put an archive, two execs, get an archive, remove."""
    client = docker.APIClient(version="auto")
    container = client.create_container(IMAGE, ["sleep", "infinity"], working_dir="/app")["Id"]
    try:
        client.start(container)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(task / "solution", "solution")
            tar.add(task / "tests", "tests")
        client.put_archive(container, "/", packed.getvalue())
        for script in ("bash /solution/solve.sh", "mkdir -p /logs/verifier && bash /tests/test.sh"):
            client.exec_start(client.exec_create(container, ["bash", "-c", script])["Id"])
        stream, _ = client.get_archive(container, "/logs/verifier/reward.txt")
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            reward = tar.extractfile("reward.txt")
            assert reward is not None
            assert reward.read() == b"1\n"
    finally:
        client.remove_container(container, force=True)
        client.close()


def _phases(job: Path) -> str:
    seconds: dict[str, list[float]] = defaultdict(list)
    for file in job.glob("*/timing.json"):
        for phase, value in json.loads(file.read_text()).items():
            seconds[phase].append(value)
    return ", ".join(f"{phase} {mean(values):.2f}" for phase, values in seconds.items())


def _peer(name: str, argv: list[str], scratch: Path, ours: float) -> None:
    if shutil.which(argv[0]) is None:
        print(f"{name}: not installed, not measured")
        return
    # In a place of its own: BenchFlow goes on with the jobs it finds, and ours look finished to it.
    place = scratch / f"{name}-alone"
    write_tasks(place / "tasks", COUNT)
    try:
        cost = measure.run(argv, place)
    except SystemExit as failed:
        print(f"{name}: did not run: {str(failed).splitlines()[-1]}")
        return
    print(f"{name:30} {cost.wall:6.2f} s   {cost.wall / ours:.1f} × ours, {cost.cpu:.1f} s CPU")
