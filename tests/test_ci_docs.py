"""The page on gates and its workflows: every command runs, every metric is there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from project import Project
from test_docs import KEYS

from pytest_benchflow.jobs.gates import METRICS, REGRESSIONS, parse_gate

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/ci-gating.md").read_text()


@pytest.fixture(scope="module")
def demo(new_project: Callable[..., Project]) -> Project:
    project = new_project(ini="[pytest]\n")
    for name in ("one", "two", "three", "four"):
        project.task(f"tasks/{name}", toml='[metadata]\ndifficulty = "easy"\n')
    return project


def run(project: Project, command: str) -> int:
    """Run a command of pytest's or ours; one that would cost money only in a dry run."""
    words = shlex.split(command.removeprefix("exec "))
    if words[0] == "pytest":
        spends = "--bf-agent" in words
        return int(project.run(*words[1:], *(["--bf-dry-run"] if spends else []), env=KEYS).ret)
    done = subprocess.run(
        command,
        shell=True,
        cwd=project.root,
        env=project.environment({"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}),
        check=False,
    )
    return done.returncode


def commands(page: str) -> Iterator[str]:
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        yield from (line for line in block.splitlines() if line.startswith(("pytest ", "bf ")))


def test_the_commands_of_the_page_work_in_order(demo: Project) -> None:
    statuses = {command: run(demo, command) for command in commands(PAGE)}
    assert len(statuses) > 8
    assert not any(statuses.values()), statuses


def test_the_workflow_in_slices_works_from_slice_to_verdict(demo: Project) -> None:
    jobs = yaml.safe_load((ROOT / "examples/ci/gated-shards.yml").read_text())["jobs"]
    (slice_,) = [step["run"] for step in jobs["slice"]["steps"] if "pytest tasks" in step.get("run", "")]
    for shard in jobs["slice"]["strategy"]["matrix"]["shard"]:
        # Four tasks in four slices: one may be empty, which is pytest's 5 and no fault.
        assert run(demo, slice_.replace("${{ matrix.shard }}", str(shard))) in (0, 5)
    (merge,) = [step["run"] for step in jobs["gate"]["steps"] if step.get("run", "").startswith("bf ")]
    assert run(demo, merge.replace("shard-*.json", "shard-[1-4].json")) == 0
    (demo.root / "shard-4.json").unlink()
    assert run(demo, merge) == 3


def test_the_gitlab_pipeline_works_from_slice_to_page(demo: Project) -> None:
    jobs = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text())
    for shard in demo.root.glob("shard-*.json"):
        shard.unlink()
    (slice_,) = jobs["slice"]["script"]
    for number in ("1", "2"):
        command = slice_.replace("$CI_NODE_INDEX", number).replace("$CI_NODE_TOTAL", "2")
        assert run(demo, command) in (0, 5)
    gate = [*jobs["gate"]["script"], *jobs["gate"]["after_script"]]
    for line in (*gate, *jobs["baseline"]["script"], *gate):  # the second time there is a baseline to compare with
        assert run(demo, line) == 0, line
    for name in ("results.json", "junit.xml", "report.html", "baseline.json"):
        assert (demo.root / name).stat().st_size > 0


def test_the_gated_workflow_would_run(demo: Project) -> None:
    jobs = yaml.safe_load((ROOT / "examples/ci/gated.yml").read_text())["jobs"]
    (command,) = [step["run"] for step in jobs["gate"]["steps"] if "pytest tasks" in step.get("run", "")]
    assert run(demo, command) == 0


def test_the_page_knows_every_metric() -> None:
    words = {*re.findall(r"`(\w+)`", PAGE)}
    assert words >= {*METRICS, *REGRESSIONS}


def test_the_ini_file_and_the_gates_of_the_page_can_be_read() -> None:
    (ini,) = re.findall(r"bf_gate =\n((?:    .*\n)+)", PAGE)
    for line in ini.splitlines():
        parse_gate(line.strip())
