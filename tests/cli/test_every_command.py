"""Every command as users start it: in a process of its own, on one small job."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project

from pytest_benchflow.cli.examples import EXAMPLES, commands_of
from pytest_benchflow.cli.main import make_parser

BF = str(Path(sys.executable).with_name("bf"))
#: Command line, exit status, and what it prints, on either stream.
COMMANDS: dict[str, tuple[str, int, str]] = {
    "tasks check": ("tasks --json", 0, '"broken": 0'),
    "tasks digest": ("tasks", 0, "  tasks/one\n"),
    "tasks export": ("native -o out", 0, "out/two\n"),
    "shell": ("tasks/one --sandbox local -- cat question.txt", 0, "6 times 7"),
    "agents": ("--json", 0, '"name": "oracle"'),
    "agents show": ("oracle", 0, "oracle"),
    "agents install": ("oracle", 0, "nothing to install"),
    "agents prune": ("", 0, "agents: nothing"),
    "run": ("-t tasks/one -a nop -e local --job-name ran", 0, "0 of 1 passed (0.0%), results in jobs/ran"),
    "job": ("-t tasks -a nop -e local --job-name ran --resume", 0, "0 of 1 passed"),
    "eval create": ("-t tasks -a nop -e local --job-name ran --resume --json", 0, '"total": 1'),
    "eval run": ("-t tasks -a nope -e local", 1, "bf: Unknown agent: 'nope'"),
    "eval list": ("jobs", 0, "made"),
    "watch": ("jobs/made", 0, "1 passed"),
    "regrade": ("jobs/made", 0, "1"),
    "metrics": ("jobs/made", 0, "100%"),
    "report": ("jobs/made -o page.html", 0, "page.html: 1 rollout"),
    "compare": ("jobs/made r.json", 0, "no evidence"),
    "export": ("jobs/made --format training -o data", 0, "1 left out: no dialogue with a model"),
    "junit": ("jobs/made", 0, '<testcase name="one/oracle"'),
    "markdown": ("r.json", 0, "### ✅ 1 of 1 rollouts passed"),
    "completion": ("bash", 0, "_shtab_bf"),
    "merge": ("r.json --gate 'pass_rate >= 1' -o merged.json", 0, "gate passed"),
    "judge check": ("none.toml --cases none.jsonl", 2, "none.toml"),
    "schema": ("rubric", 0, '"properties"'),
    "cleanup": ("--json", 0, "["),
}
TRIED_APART = {"tasks init", "tasks migrate", "view"}


@pytest.fixture(scope="module")
def job(new_project: Callable[..., Project]) -> Project:
    """A folder with a task, and a job of it whose workspace was kept."""
    project = new_project()
    assert bf(project, "tasks init tasks/one").returncode == 0
    subprocess.run(["cp", "-r", "tasks/one", "native"], cwd=project.root, check=True)
    (project.root / "native").rename(project.root / "two")
    (project.root / "native").mkdir()
    (project.root / "two").rename(project.root / "native/two")
    done = bf(project, "tasks migrate native --remove-legacy")
    assert (done.returncode, done.stdout) == (0, "native/two\n")
    options = ("--bf-sandbox=local", "--bf-job-name=made", "--bf-save-workspace", "--bf-json=r.json")
    project.run("tasks", *options).assert_outcomes(passed=1)
    return project


def bf(project: Project, words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BF, *shlex.split(words)],
        cwd=project.root,
        env=project.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_does_its_work_or_says_in_a_line_why_not(job: Project, name: str) -> None:
    words, status, said = COMMANDS[name]
    done = bf(job, f"{name} {words}")
    assert done.returncode == status, done.stderr
    assert said in (done.stdout if status == 0 else done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("metrics none", 2, "bf: none is not a directory; name a job, or a folder of jobs"),
        ("metrics tasks", 2, "bf: there is no result in tasks; name a job, or a folder of jobs"),
        ("report none", 2, "bf: none cannot be read: No such file or directory"),
        ("report half", 2, "bf: there is no result in half; 1 cannot be read, for example half/one__1/result.json"),
        ("compare r.json tasks", 2, "bf: there is no result in tasks"),
        ("compare r.json", 2, "bf: there is one job to compare; name at least two"),
        ("view r.json", 2, "bf: r.json is not a directory"),
        ("regrade none", 2, "bf: there is no result in none; name a job"),
        ("merge jobs", 2, "bf: jobs is a directory; name the files that --bf-json wrote"),
        ("run none", 1, "bf: none does not exist; name a task, a folder of tasks, or a job file"),
        ("job -t none -a nop", 1, "bf: none does not exist; name a task, a folder of tasks, or a job file"),
        (
            "run -t tasks -a nop -e local --job-name made",
            1,
            "choose another --job-name, remove it, or continue it with",
        ),
        ("eval list tasks/one", 2, "bf: there is no job in tasks/one"),
        ("watch none", 2, "bf: there is no job none in jobs; known: made"),
        ("shell none", 125, "bf shell: none: is missing"),
        ("agents show orakel", 2, "Unknown agent: 'orakel'. Did you mean: 'oracle'?"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(job: Project, words: str, status: int, said: str) -> None:
    job.write({"half/one__1/result.json": '{"task_name": "o'})
    done = bf(job, words)
    assert (done.returncode, done.stdout) == (status, "")
    (line,) = done.stderr.splitlines()
    assert said in line


def test_the_viewer_answers_until_it_is_stopped(job: Project) -> None:
    command = [BF, "view", "jobs", "--port", "0"]
    with subprocess.Popen(
        command, cwd=job.root, env=job.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as viewer:
        assert viewer.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/\S*", viewer.stdout.readline())
        try:
            assert address is not None
            with urllib.request.urlopen(address[0], timeout=30) as answer:
                assert b"<!doctype html>" in answer.read(100).lower()
        finally:
            viewer.send_signal(signal.SIGINT)
            viewer.communicate(timeout=30)
    assert viewer.returncode in (0, 130)


def test_every_command_is_tried_and_has_examples_that_it_understands() -> None:
    parser = make_parser()
    leaves = {name for name, command in commands_of(parser) if not command._subparsers or name == "agents"}
    assert leaves == {*COMMANDS} | TRIED_APART
    assert leaves == {*EXAMPLES}
    for name, examples in EXAMPLES.items():
        for example in examples:
            words = shlex.split(example.partition(" > ")[0])[1:]
            parser.parse_args(words[: words.index("--")] if "--" in words else words)
            assert example.startswith(f"bf {name}")
    help_text = dict(commands_of(parser))["eval list"].format_help()
    assert "examples:\n  bf eval list\n" in help_text


def test_what_machines_read_is_json(job: Project) -> None:
    for words in (
        "agents --json",
        "tasks check tasks --json",
        "metrics jobs/made --json",
        "compare r.json r.json --json",
        "eval list --json",
        "export r.json --format training -o data --json",
        "cleanup --json",
        "schema rollout",
    ):
        json.loads(bf(job, words).stdout)


def test_a_table_that_nobody_reads_ends_quietly(job: Project) -> None:
    command = f"set -o pipefail; {shlex.quote(BF)} compare r.json r.json | true"
    done = subprocess.run(
        ["bash", "-c", command], cwd=job.root, env=job.environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (141, "")
