"""Oracle rollouts of a trivial task in the local sandbox: CPU of everything each starts, and memory of the runner."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from measure import HERE, Checkout, Cost
from workloads import write_project, write_tasks

COUNT = 200
IN_FLIGHT = 64
#: Longer than it takes to start all of them.
LINGER_SEC = 10
OPTIONS = ("-q", "--bf-sandbox", "local")


class Rollouts(NamedTuple):
    """One rollout and many, and what each of the many adds to the one."""

    one: Cost
    many: Cost
    each_cpu: float


def local(scratch: Path) -> None:
    """Print CPU per rollout (bar 120 ms) and how much the runner grew over all of them (bar 30 MB)."""
    write_many(scratch, COUNT)
    HERE.pytest("tasks/task-00000", *OPTIONS, cwd=scratch)
    one, many, each = roll_out(HERE, scratch, COUNT)
    print(f"one rollout, pytest included   {one.wall:6.2f} s wall, {one.cpu:.2f} s CPU, {one.rss_mb:.0f} MB")
    print(f"{COUNT} rollouts                   {many.wall:6.2f} s wall, {COUNT / many.wall * 60:.0f} a minute")
    print(f"each                           {each * 1000:6.1f} ms of CPU (bar 120)")
    print(f"on two cores                   {2 / each:6.1f} a second (bar 12)")
    print(f"growth of the runner           {many.rss_mb - one.rss_mb:6.1f} MB (bar 30)")


def write_many(project: Path, count: int, linger_sec: int = 0) -> None:
    """Write a project of tasks whose solutions take that long."""
    write_project(project)
    write_tasks(project / "tasks", count, linger_sec)


def roll_out(checkout: Checkout, project: Path, count: int) -> Rollouts:
    """Run one of the tasks, then all `count` of them."""
    one = checkout.pytest("tasks/task-00000", *OPTIONS, cwd=project)
    many = checkout.pytest("tasks", *OPTIONS, cwd=project)
    return Rollouts(one, many, (many.cpu - one.cpu) / (count - 1))


def in_flight(checkout: Checkout, project: Path) -> Cost:
    """Run all tasks of a project at once, and watch their memory."""
    cost = checkout.pytest("tasks", *OPTIONS, f"--bf-concurrency={IN_FLIGHT}", cwd=project, watch=True)
    # Each has a shell at least.
    assert cost.processes > IN_FLIGHT, f"{cost.processes} processes are not {IN_FLIGHT} rollouts"
    return cost
