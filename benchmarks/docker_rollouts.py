"""Oracle rollouts in Docker beside the same work straight on the Engine API, and beside peers where they are installed.

Not called `docker`: it would hide the SDK of that name.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

import measure
from measure import HERE, Checkout, Cost
from workloads import write_project, write_tasks

COUNT = 16
CONCURRENCY = 4
ROUNDS = 3
OPTIONS = ("-q", "--bf-sandbox=docker", f"--bf-concurrency={CONCURRENCY}")
PEERS: dict[str, list[str]] = {
    "harbor": ["harbor", "run", "-e", "docker", "-a", "oracle", "-n", str(CONCURRENCY), "-p", "tasks"],
    "bench": [
        *("bench", "eval", "run", "--sandbox", "docker", "--agent", "oracle"),
        *("--concurrency", str(CONCURRENCY), "--tasks-dir", "tasks"),
    ],
}


def rollouts(scratch: Path) -> None:
    """Print one rollout (bar 1.5 s), 16 at 4 a time (bar 1.3 × floor), CPU (bar 5 s) and memory (bar 200 MB)."""
    if missing := unavailable(HERE):
        print(missing)
        return
    write_many(scratch)
    roll_out_one(HERE, scratch)
    # In turns, so that a machine that gets busier is busier for both.
    floors, ones, many = [], [], []
    for number in range(ROUNDS):
        floors.append((floor(HERE, scratch, 1), floor(HERE, scratch, COUNT)))
        ones.append(roll_out_one(HERE, scratch))
        many.append(roll_out_all(HERE, scratch, f"--bf-job-name=bench-{number}"))
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


def unavailable(checkout: Checkout) -> str | None:
    """Return why there is nothing to measure, None if a daemon answers."""
    program = "import docker; docker.APIClient(version='auto').close()"
    try:
        measure.run([checkout.python, "-c", program], checkout.root)
    except SystemExit as failed:
        return f"no Docker daemon: {str(failed).splitlines()[-1]}"
    return None


def write_many(project: Path) -> None:
    """Write a project of trivial tasks."""
    write_project(project)
    write_tasks(project / "tasks", COUNT)


def floor(checkout: Checkout, project: Path, count: int) -> float:
    """Return the seconds of what `count` rollouts cannot do without."""
    # A process of its own: the SDK is installed in the checkout's environment, not always in ours.
    program = str(Path(__file__).with_name("docker_floor.py"))
    task = str(project / "tasks" / "task-00000")
    return float(measure.run([checkout.python, program, task, str(count), str(CONCURRENCY)], project).output)


def roll_out_one(checkout: Checkout, project: Path) -> Cost:
    """Run one rollout."""
    return checkout.pytest("tasks/task-00000", *OPTIONS, cwd=project)


def roll_out_all(checkout: Checkout, project: Path, *more: str) -> Cost:
    """Run a rollout of each task."""
    return checkout.pytest("tasks", *OPTIONS, *more, cwd=project)


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
