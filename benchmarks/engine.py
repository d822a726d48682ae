"""The engine by itself: a sandbox that does nothing and an agent that only waits, so that all that is left is ours."""

from __future__ import annotations

import heapq
import json
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from measure import HERE, Checkout, Cost, run
from workloads import write_empty_tests, write_project, write_tasks

from pytest_benchflow.jobs import Expected, start_order

COUNT, IN_FLIGHT, SECONDS = 640, 64, 0.5
MANY = 10_000
#: Rollouts of a mix of durations as agents have them: most short, some ten times as long; recorded by a first run.
MIX_SIZE, MIX_WIDTH = 120, 8

CONFTEST = """
import asyncio
import os

from pytest_benchflow.agents import AgentOutcome, ModelAccess, PromptResult
from pytest_benchflow.sandboxes import Capabilities, ExecResult


class Session:
    agent_name = agent_version = "bench"

    async def prompt(self, text, *, timeout_sec):
        seconds = float(text.partition("WAIT ")[2].partition("\\n")[0] or os.environ["BENCH_SECONDS"])
        if seconds:
            await asyncio.sleep(seconds)
        return PromptResult(AgentOutcome.COMPLETED, stop_reason="end_turn", message="done")

    async def close(self):
        pass


class Waiter:
    name = "waiter"
    takes_model = calls_model = runs_as_task_user = False
    skill_dirs = ()

    def skip_reason(self, task):
        return None

    def access(self, task, request):
        return ModelAccess(env=request.env)

    async def prepare_on_host(self, log_dir):
        return ()

    async def install(self, context):
        pass

    async def connect(self, context):
        return Session()


class NoopSandbox:
    workdir = "/app"
    capabilities = Capabilities(no_network=True, users=True)
    notes = ()

    def __init__(self, name):
        self.id = name

    async def start(self):
        pass

    async def stop(self, *, delete=True):
        pass

    async def exec(self, cmd, *, user=None, cwd=None, env=None, timeout_sec=None, stdin=None):
        answers = {"useradd": "/home/agent\\n", "echo intact": "intact\\n"}
        return ExecResult(0, next((text for word, text in answers.items() if word in cmd), ""), "")

    async def open_process(self, argv, *, user=None, cwd=None, env=None):
        raise NotImplementedError

    async def upload_file(self, source, target):
        pass

    async def upload_dir(self, source, target):
        pass

    async def download_file(self, source, target):
        raise FileNotFoundError(source)

    async def download_dir(self, source, target):
        target.mkdir(parents=True, exist_ok=True)
        if source.endswith("/verifier"):
            (target / "reward.txt").write_text("1")

    async def snapshot(self, name=None):
        raise NotImplementedError

    async def restore(self, image):
        raise NotImplementedError


class Noop:
    name = "noop"
    options = ()
    capabilities = NoopSandbox.capabilities

    def configure(self, values):
        pass

    async def preflight(self):
        pass

    def create(self, spec):
        return NoopSandbox(spec.name)

    def leftovers(self, *, unused_for_sec=None):
        return []

    async def aclose(self):
        pass


def pytest_bf_register_agents(registry):
    registry.register(Waiter())


def pytest_bf_register_sandboxes(registry):
    registry.register("noop", Noop)
"""


EVALUATION = """
import asyncio
import sys

sys.path.insert(0, "")
import conftest

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.jobs import Evaluation, EvaluationConfig
from pytest_benchflow.sandboxes import SandboxRegistry

agents, sandboxes = AgentRegistry(), SandboxRegistry()
conftest.pytest_bf_register_agents(agents)
conftest.pytest_bf_register_sandboxes(sandboxes)
config = EvaluationConfig(agent="waiter", sandbox="noop", concurrency=64)
evaluation = Evaluation("tasks", "evaluations", config, job_name="all", agents=agents, sandboxes=sandboxes)
assert asyncio.run(evaluation.run()).passed == int(sys.argv[1])
"""


def in_flight(scratch: Path) -> None:
    """Print the time of 640 rollouts of half a second at 64 in flight (bar 1.3 times the ideal 5 s, and 200 MB)."""
    _write(scratch, COUNT)
    cost = _roll_out(HERE, scratch, "tasks", f"--bf-concurrency={IN_FLIGHT}", seconds=SECONDS)
    ideal = COUNT / IN_FLIGHT * SECONDS
    print(
        f"{COUNT} rollouts of {SECONDS} s     {cost.wall:6.2f} s wall, {cost.wall / ideal:.2f} of the ideal (bar 1.3)"
    )
    print(f"                           {cost.cpu:6.2f} s CPU, {cost.rss_mb:.0f} MB (bar 200)")


def overhead(scratch: Path) -> None:
    """Print what a rollout costs if sandbox and agent cost nothing (bar 10 ms of CPU)."""
    print(f"each                       {engine_cost(scratch, COUNT) * 1000:6.1f} ms of CPU (bar 10)")


def engine_cost(project: Path, count: int) -> float:
    """Return the seconds of CPU time that one more rollout costs if sandbox and agent cost nothing."""
    _write(project, count)
    one = _roll_out(HERE, project, "tasks/task-00000")
    many = _roll_out(HERE, project, "tasks", f"--bf-concurrency={IN_FLIGHT}")
    return (many.cpu - one.cpu) / (count - 1)


def many(scratch: Path) -> None:
    """Print what ten thousand rollouts in one job take, in time and memory, and what continuing the job takes."""
    _write(scratch, MANY)
    write_project(scratch / "bare")
    write_empty_tests(scratch / "bare/tests", MANY)
    few = _roll_out(HERE, scratch, *(f"tasks/task-{number:05}" for number in range(MANY // 10)), "--bf-job-name=few")
    # With pytest's cache, where the index of tasks is, as users have it.
    all_of_them = _roll_out(HERE, scratch, "tasks", "--bf-job-name=all", "--bf-json=report.json", keep=True, cache=True)
    resume = ("tasks", "--bf-job-name=all", "--bf-resume", "--bf-json=again.json")
    again = _roll_out(HERE, scratch, *resume, keep=True, cache=True)
    listed = HERE.pytest("-q", "--co", "tasks", cwd=scratch, cache=True)
    bare = HERE.pytest("-q", "-p", "no:benchflow", "tests", cwd=scratch / "bare", cache=True)
    evaluate = [HERE.python, "-c", EVALUATION, str(MANY)]
    first, second = run(evaluate, scratch), run(evaluate, scratch)
    grown = (all_of_them.rss_mb - few.rss_mb) * 1024 / (MANY * 0.9)
    print(f"{MANY} rollouts            {all_of_them.wall:6.1f} s wall, {all_of_them.cpu:.1f} s CPU")
    print(f"memory                     {all_of_them.rss_mb:6.0f} MB, {grown:.1f} KB for each rollout")
    print(f"continuing the finished job{again.wall:6.1f} s wall, {again.cpu:.1f} s CPU, {again.rss_mb:.0f} MB")
    print(f"only collecting its items  {listed.wall:6.1f} s wall, {listed.cpu:.1f} s CPU")
    print(f"{MANY} empty tests, bare   {bare.wall:6.1f} s wall, {bare.cpu:.1f} s CPU, {bare.rss_mb:.0f} MB")
    print(f"Evaluation, without pytest {first.wall:6.1f} s wall, {first.cpu:.1f} s CPU, {first.rss_mb:.0f} MB")
    print(f"continuing that (bar 5 s)  {second.wall:6.1f} s wall, {second.cpu:.1f} s CPU, {second.rss_mb:.0f} MB")


def longest_first(scratch: Path) -> None:
    """Print how close to the shortest possible time a mix of durations ends, in theory and for real (bar 1.1)."""
    chance = random.Random(1)
    seconds = [round(min(60.0, chance.lognormvariate(0.3, 1.0)), 2) for _ in range(MIX_SIZE)]
    bound = max(sum(seconds) / MIX_WIDTH, *seconds)
    order = start_order([Expected("waiter", each) for each in seconds], MIX_WIDTH)
    print(f"in the order given         {_makespan(seconds, range(MIX_SIZE)) / bound:6.2f} of the bound, by arithmetic")
    print(f"the longest first          {_makespan(seconds, order) / bound:6.2f} of the bound, by arithmetic (bar 1.1)")
    _write(scratch, MIX_SIZE)
    for number, each in enumerate(seconds):
        (scratch / f"tasks/task-{number:05}/instruction.md").write_text(f"WAIT {each}\n")
    args = ("tasks", f"--bf-concurrency={MIX_WIDTH}", "-p", "cacheprovider")
    for name, more in (("given", ["--bf-order=given"]), ("longest", [])):  # the first run records what the second knows
        _roll_out(HERE, scratch, *args, f"--bf-job-name={name}", *more, keep=True)
        print(f"--bf-order {name:7}         {_span(scratch / 'jobs' / name) / bound:6.2f} of the bound ({bound:.1f} s)")


def _makespan(seconds: Sequence[float], order: Sequence[int]) -> float:
    free = [0.0] * MIX_WIDTH
    for number in order:
        heapq.heapreplace(free, free[0] + seconds[number])
    return max(free)


def _span(job: Path) -> float:
    """Return the seconds from the first start to the last end, by the job's ledger."""
    events = [json.loads(line) for line in (job / "ledger.jsonl").read_text().splitlines()]
    return max(each["ts"] for each in events if each["kind"] == "end") - min(
        each["ts"] for each in events if each["kind"] == "start"
    )


def _write(project: Path, count: int) -> None:
    write_project(project)
    write_tasks(project / "tasks", count)
    for file in (project / "tasks").glob("*/task.toml"):  # what defends a verifier has a benchmark of its own
        file.write_text(file.read_text().replace("[verifier]", "[verifier.hardening]\nenabled = false\n[verifier]"))
    (project / "conftest.py").write_text(CONFTEST)


def _roll_out(
    checkout: Checkout, project: Path, *args: str, seconds: float = 0.0, keep: bool = False, cache: bool = False
) -> Cost:
    os.environ["BENCH_SECONDS"] = str(seconds)
    cost = checkout.pytest("-q", "--bf-agent=waiter", "--bf-sandbox=noop", *args, cwd=project, cache=cache)
    if not keep:
        shutil.rmtree(project / "jobs")
    return cost
