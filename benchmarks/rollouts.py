"""Oracle rollouts of a trivial task in the local sandbox: CPU of everything each starts, and memory of the runner."""

from __future__ import annotations

from pathlib import Path

import measure
from workloads import write_tasks

COUNT = 200


def local(scratch: Path) -> None:
    """Print CPU per rollout (bar 150 ms) and how much the runner grew over all of them (bar 30 MB)."""
    write_tasks(scratch / "tasks", COUNT)
    (scratch / "pytest.ini").write_text("[pytest]\n")
    options = ("-q", "--bf-sandbox", "local")
    measure.pytest("tasks/task-00000", *options, cwd=scratch)
    one = measure.pytest("tasks/task-00000", *options, cwd=scratch)
    many = measure.pytest("tasks", *options, cwd=scratch)
    each = (many.cpu - one.cpu) / (COUNT - 1)
    print(f"one rollout, pytest included   {one.wall:6.2f} s wall, {one.cpu:.2f} s CPU, {one.rss_mb:.0f} MB")
    print(f"{COUNT} rollouts                   {many.wall:6.2f} s wall, {COUNT / many.wall * 60:.0f} a minute")
    print(f"each                           {each * 1000:6.1f} ms of CPU (bar 150)")
    print(f"growth of the runner           {many.rss_mb - one.rss_mb:6.1f} MB (bar 30)")
