"""xdist: what workers cost, beside the same number of them with empty tests, and beside one process."""

from __future__ import annotations

from pathlib import Path

import rollouts
from measure import HERE
from workloads import write_project, write_test_files

COUNT = 64


def thin(scratch: Path) -> None:
    """Print CPU and memory of `-n 64` (bar: bare xdist and the rollouts themselves, times 1.3)."""
    rollouts.write_many(scratch, COUNT)
    write_project(scratch / "bare")
    write_test_files(scratch / "bare" / "tests", COUNT)
    warm = HERE.pytest("tasks/task-00000", *rollouts.OPTIONS, cwd=scratch)
    one = HERE.pytest("tasks", *rollouts.OPTIONS, cwd=scratch, watch=True)
    bare = HERE.pytest("-q", "-p", "no:benchflow", "-n", str(COUNT), "tests", cwd=scratch / "bare", watch=True)
    ours = HERE.pytest("tasks", *rollouts.OPTIONS, "-n", str(COUNT), cwd=scratch, watch=True)
    cpu, memory = bare.cpu + one.cpu - warm.cpu, bare.tree_mb + one.tree_mb
    print(f"one process                {one.cpu:6.1f} s CPU, {one.tree_mb:.0f} MB, {one.wall:.1f} s wall")
    print(f"-n {COUNT}, empty tests        {bare.cpu:6.1f} s CPU, {bare.tree_mb:.0f} MB, {bare.wall:.1f} s wall")
    print(f"-n {COUNT}                     {ours.cpu:6.1f} s CPU, {ours.tree_mb:.0f} MB, {ours.wall:.1f} s wall")
    print(f"of their sum               {ours.cpu / cpu:6.2f} CPU, {ours.tree_mb / memory:.2f} memory (bar 1.3)")
