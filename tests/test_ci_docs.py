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
        project.task(f"tasks/{name}", toml='[metadata]\ndifficulty = "medium"\n')
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
    merge, summary, report = [step["run"] for step in jobs["gate"]["steps"] if step.get("run", "").startswith("bf ")]
    assert run(demo, merge.replace("shard-*.json", "shard-[1-4].json")) == 0
    assert run(demo, report) == 0
    assert run(demo, summary.replace('"$GITHUB_STEP_SUMMARY"', "summary.md")) == 0
    assert "rate &#62;= 0.6: " in (demo.root / "summary.md").read_text()
    assert (demo.root / "report.html").exists()
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


def gated_step(name: str) -> str:
    steps = yaml.safe_load((ROOT / "examples/ci/gated.yml").read_text())["jobs"]["gate"]["steps"]
    (command,) = [step["run"] for step in steps if step.get("name") == name]
    return str(command)


@pytest.mark.parametrize("has_baseline", [False, True], ids=["first", "with-a-baseline"])
def test_the_gated_workflow_would_run(demo: Project, has_baseline: bool) -> None:
    assert run(demo, "pytest tasks --bf-baseline=baseline.json --bf-update-baseline") == 0
    command = gated_step("Run the benchmark")
    ((expression, options),) = re.findall(r"(\${{.* && '(.*?)' .*}})", command)
    assert run(demo, command.replace(expression, options if has_baseline else "")) == 0


def test_the_workflow_has_one_comment_per_pull_request(tmp_path: Path) -> None:
    script = tmp_path / "gh"
    script.write_text('#!/bin/sh\necho "$@" >>calls\ncase "$*" in *--jq*) cat comments;; esac\n')
    script.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "o/r"}
    step = gated_step("Comment on the pull request").replace("${{ github.event.number }}", "7")
    calls = []
    for earlier in ("", "41\n42\n"):
        (tmp_path / "comments").write_text(earlier)
        (tmp_path / "calls").unlink(missing_ok=True)
        subprocess.run(["bash", "-eo", "pipefail", "-c", step], cwd=tmp_path, env=env, check=True)
        calls.append((tmp_path / "calls").read_text().splitlines()[-1])
    assert calls == [
        "api --silent repos/o/r/issues/7/comments --field body=@results.md",
        "api --silent --method PATCH repos/o/r/issues/comments/41 --field body=@results.md",
    ]


def test_the_page_shows_the_whole_gated_workflow() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert shown == (ROOT / "examples/ci/gated.yml").read_text()


@pytest.mark.parametrize("service", ["github-workflows", "gitlab-ci"])
def test_the_files_are_what_the_ci_service_reads(service: str) -> None:
    files = [
        file for file in sorted((ROOT / "examples/ci").iterdir()) if (file.stem == "gitlab") == (service == "gitlab-ci")
    ]
    transform = ["--data-transform=gitlab-ci"] if service == "gitlab-ci" else []
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        f"--builtin-schema=vendor.{service}",
        *transform,
        *map(str, files),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (len(files) > 0, done.returncode) == (True, 0), done.stdout


def test_the_page_knows_every_metric() -> None:
    words = {*re.findall(r"`(\w+)`", PAGE)}
    assert words >= {*METRICS, *REGRESSIONS}


def test_the_ini_file_and_the_gates_of_the_page_can_be_read() -> None:
    (ini,) = re.findall(r"bf_gate =\n((?:    .*\n)+)", PAGE)
    for line in ini.splitlines():
        parse_gate(line.strip())
