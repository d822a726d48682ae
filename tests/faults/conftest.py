"""What all faults share: a job of small rollouts, run under a process that adopts what outlives it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from processes import command_line, descendants, stat
from project import OPTIONS, PYTEST, Project, wait_for

from pytest_benchflow.sandboxes.docker.channel import FIRST_LINE_SEC

REAPER = Path(__file__).with_name("reaper.py")
GRACE_SEC = 20
"""How long what a killed run started may take to notice."""
CONTAINER_GRACE_SEC = FIRST_LINE_SEC + 30
"""The same of containers: one that was just starting waits a minute for its runner."""
TASKS = 6
LONG = bool(os.environ.get("BF_FAULT_LONG"))
"""Whether to run what takes minutes too; `make test-faults` does."""
JOB_FILE = """
tasks: tasks
agent: oracle
sandbox: local
concurrency: 3
job_name: job
"""


@dataclass(frozen=True)
class Ended:
    """How a run ended, what it printed, and what outlived it."""

    status: int
    output: str
    left: list[str]


@dataclass
class FaultyJob:
    """One job, run again and again until it is done; remembers every score so that none can get lost or change."""

    project: Project
    mode: str
    """`one` process, xdist `workers`, `python` for bf run, or `docker` for one process with containers."""
    n_tasks: int = TASKS
    scores: dict[Path, bytes] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    runners: list[int] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        """Return the job's directory."""
        return self.project.root / "jobs/job"

    def command(self) -> list[str]:
        """Return the command that continues the job, or begins it."""
        if self.mode == "python":
            bf = [sys.executable, "-c", "import sys; from pytest_benchflow.cli.main import main; sys.exit(main())"]
            return [*bf, "run", "job.yaml", "--job-name=job", "--resume"]
        more = ["-n", "2", "--bf-concurrency=2"] if self.mode == "workers" else ["--bf-concurrency=3"]
        more += ["--bf-sandbox=docker"] if self.mode == "docker" else ["--bf-sandbox=local"]
        reports = ["--bf-json=report.json", "--junitxml=junit.xml"]
        return [*PYTEST, *OPTIONS, "tasks", *more, *reports, "--bf-job-name=job", "--bf-resume"]

    def run(self, *, kill: Callable[[int], int | None] | None = None, after: float = 0.0) -> Ended:
        """Run it; `kill` gets the runner's process after some seconds and returns the one to kill, if any."""
        temporary = self.project.root / "tmp"
        temporary.mkdir(exist_ok=True)
        reaper = subprocess.Popen(
            [sys.executable, str(REAPER), str(GRACE_SEC), *self.command()],
            cwd=self.project.root,
            env=self.project.environment({"TMPDIR": str(temporary), **self.variables}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert reaper.stdout is not None
        runner = int(reaper.stdout.readline())
        self.runners.append(runner)
        timer = threading.Timer(after, _kill_chosen, (kill, runner))
        if kill is not None:
            timer.start()
        try:
            said, log = reaper.communicate(timeout=180 + self.n_tasks)
        finally:
            timer.cancel()
            reaper.kill()
            if kill is not None:
                timer.join()  # a daemon that is being started again has to be there before anybody asks it
        facts = json.loads(said.splitlines()[-1])
        if self.mode == "docker":
            facts["left"] += self._wait_for_containers(runner)
        return Ended(facts["status"], log, facts["left"])

    def _wait_for_containers(self, runner: int) -> list[str]:
        """Wait for the end of a run's containers; return those that go on, and show what late ones do."""
        for seconds in (GRACE_SEC, CONTAINER_GRACE_SEC - GRACE_SEC):
            with suppress(AssertionError):
                wait_for(lambda: not self._running_containers(runner), "the end of the containers", seconds)
                return []
            for each in self._running_containers(runner):
                for words in (("inspect", "--format={{json .State}}"), ("top",)):
                    asked = ["docker", *words, each.split()[0]]
                    done = subprocess.run(asked, capture_output=True, text=True, env={**os.environ, **self.variables})
                    print(each, done.stdout)
        return self._running_containers(runner)

    def _containers(self, runner: int) -> list[str]:
        """Return the containers of a run, with their states."""
        words = ["docker", "ps", "-a", "--filter", f"label=benchflow.owner_pid={runner}", "--format={{.ID}} {{.State}}"]
        variables = {**os.environ, **self.variables}
        return subprocess.run(words, capture_output=True, check=True, text=True, env=variables).stdout.splitlines()

    def _running_containers(self, runner: int) -> list[str]:
        """Leave out those that were never started: a killed run cannot take them back, and the next one does."""
        return [each for each in self._containers(runner) if not each.endswith(" created")]

    def remember_scores(self) -> None:
        """Check that no score has gone or changed since the last time, and remember those that are new."""
        found = {path: path.read_bytes() for path in sorted(self.directory.glob("*/result.json"))}
        found = {path: data for path, data in found.items() if json.loads(data)["reward"] is not None}
        assert {path: found.get(path) for path in self.scores} == self.scores
        self.scores = found

    def check_complete(self, ended: Ended) -> None:
        """Check that every rollout has just one score, and that everybody says so."""
        assert ended.status == 0, ended.output
        self.remember_scores()
        keys = [json.loads(data)["key"] for data in self.scores.values()]
        assert len(keys) == self.n_tasks, ended.output
        assert len(set(keys)) == self.n_tasks
        if self.mode != "python":
            report = json.loads((self.project.root / "report.json").read_text())
            assert [entry["status"] for entry in report["rollouts"]] == ["passed"] * self.n_tasks
            assert sorted(entry["id"] for entry in report["rollouts"]) == sorted(keys)
        left = [name for name in os.listdir(self.project.root / "tmp") if not name.startswith("pytest-of-")]
        assert not left
        if self.mode == "docker":
            assert not [each for runner in self.runners for each in self._containers(runner)]


def _kill_chosen(kill: Callable[[int], int | None], runner: int) -> None:
    victim = kill(runner)
    if victim is not None:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return


def the_runner(runner: int) -> int:
    """Choose the runner itself."""
    return runner


def some_worker(chance: random.Random) -> Callable[[int], int | None]:
    """Return the choice of one of xdist's workers, None before they are there."""

    def choose(runner: int) -> int | None:
        fields = {pid: stat(pid) for pid in descendants(runner) - {runner}}
        children = [pid for pid, each in fields.items() if each and int(each[1]) == runner]
        workers: Sequence[int] = sorted(pid for pid in children if b"exec(eval(sys.stdin" in command_line(pid))
        return chance.choice(workers) if workers else None

    return choose


@pytest.fixture
def faulty_job(new_project: Callable[..., Project]) -> Callable[..., FaultyJob]:
    """Give a test the function that writes a job of rollouts, each a little different in length, or all tiny ones."""

    def write(mode: str, n_tiny: int = 0) -> FaultyJob:
        project = new_project(f"faults-{mode}")
        for number in range(n_tiny):
            project.task(f"tasks/t{number}")
        for number in range(0 if n_tiny else TASKS):
            # The first one builds a layer of its own, so that kills also meet half-made layers.
            own = f"RUN echo {project.root.name} > /built\n" if number == 0 else ""
            base = "bf-test/busybox:1" if mode == "docker" else "debian:bookworm-slim"
            project.task(
                f"tasks/t{number}",
                dockerfile=f"FROM {base}\nWORKDIR /app\n{own}",
                solve=f"sleep 0.{number}\necho done > /app/done.txt",
            )
        project.write({"job.yaml": JOB_FILE})
        host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        return FaultyJob(project, mode, n_tiny or TASKS, variables={"DOCKER_HOST": host} if mode == "docker" else {})

    return write
