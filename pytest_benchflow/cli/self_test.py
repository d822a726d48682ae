"""`bf tasks check --run`: prove of each task that its solution passes and that doing nothing does not."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.core.errors import BenchflowError
from pytest_benchflow.core.text import one_line
from pytest_benchflow.jobs import Engine, open_job, retry_policy
from pytest_benchflow.rollout import Resources, RolloutConfig, make_config
from pytest_benchflow.sandboxes import SandboxRegistry, parse_backend_options

if TYPE_CHECKING:
    from pytest_benchflow.rollout import RolloutResult
    from pytest_benchflow.tasks import Task

#: Both at once: one of them builds what the other waits for.
_AGENTS = ("nop", "oracle")
_REASON_CHARS = 400


@dataclass(frozen=True, slots=True)
class SelfTestOptions:
    """Where and how rollouts run."""

    sandbox: str = "auto"
    sandbox_options: Sequence[str] = ()
    jobs_dir: Path = Path("jobs")
    concurrency: int | None = None


def run_self_test(tasks: Sequence[Task], options: SelfTestOptions) -> int:
    """Run nop and oracle on every task and print a table; 0 if all are sound, 1 if some are not, 2 if none can run."""
    try:
        unsound, directory = asyncio.run(_run(tasks, options))
    except BenchflowError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    what = "1 task" if len(tasks) == 1 else f"{len(tasks)} tasks"
    print(f"{what}, {unsound or 'none'} unsound, results in {directory}")
    return 1 if unsound else 0


async def _run(tasks: Sequence[Task], options: SelfTestOptions) -> tuple[int, Path]:
    sandboxes = SandboxRegistry()
    sandboxes.add_options(parse_backend_options(options.sandbox_options, sandboxes))
    sandbox, _ = sandboxes.resolve(options.sandbox)
    resources = Resources(AgentRegistry(), sandboxes)
    name = time.strftime("%Y-%m-%d__%H-%M-%S")
    job = open_job(options.jobs_dir, name, uuid.uuid4().hex, exact=False, retry=retry_policy(None, None))
    job.hold()
    engine = Engine(options.concurrency or max(len(_AGENTS), os.cpu_count() or 1))
    engine.at_close(resources.aclose)
    try:
        results = [
            (
                task.path,
                [engine.submit(partial(job.run, _config(task, agent, sandbox), task, resources)) for agent in _AGENTS],
            )
            for task in tasks
            if not task.run.skip
        ]
        return await _show(tasks, dict(results)), job.directory
    finally:
        await asyncio.to_thread(engine.close)
        job.close()


async def _show(tasks: Sequence[Task], results: Mapping[Path, Sequence[Future[RolloutResult]]]) -> int:
    """Print the line of each task once its results are there; return how many tasks are unsound."""
    columns = _Columns(max(len(_label(task)) for task in tasks))
    print(columns.head, flush=True)
    unsound = 0
    for task in tasks:
        if task.path not in results:
            columns.show_skipped(task)
            continue
        nop, oracle = [await asyncio.wrap_future(future) for future in results[task.path]]
        unsound += not columns.show(task, nop, oracle)
    return unsound


def _config(task: Task, agent: str, sandbox: str) -> RolloutConfig:
    hints = task.run
    return make_config(
        {
            "task_path": task.path,
            "agent": agent,
            "sandbox": sandbox,
            "threshold": hints.threshold,
            "timeout": hints.timeout_sec,
            "key": f"{task.path}::{agent}",
        }
    )


class _Columns:
    """The table: a line for each task, and below it what is wrong with it."""

    def __init__(self, width: int) -> None:
        self._width = max(width, len("task"))

    @property
    def head(self) -> str:
        """The heading."""
        return self._line("task", "nop", "oracle", "").rstrip()

    def show(self, task: Task, nop: RolloutResult, oracle: RolloutResult) -> bool:
        """Print the line of a task and return whether it is sound."""
        problems = [*nop_problems(nop), *oracle_problems(oracle)]
        excuse = "quarantined" if task.run.quarantine else "expected to fail" if task.run.xfail else None
        bad = f"unsound, {excuse}" if excuse else "UNSOUND"
        verdict = bad if problems else oracle.skipped or nop.skipped or "ok"
        self._print(task, _cell(nop), _cell(oracle), verdict)
        for problem in problems:
            print(f"  {problem}", flush=True)
        return not problems or excuse is not None

    def show_skipped(self, task: Task) -> None:
        """Print the line of a task that its file wants to be skipped."""
        self._print(task, "skipped", "skipped", str(task.run.skip))

    def _print(self, task: Task, *cells: str) -> None:
        print(self._line(_label(task), *cells), flush=True)

    def _line(self, *cells: str) -> str:
        return "{:{}}  {:7}  {:7}  {}".format(cells[0], self._width, *cells[1:])


def _label(task: Task) -> str:
    here = Path.cwd()
    return str(task.path.relative_to(here) if task.path.is_relative_to(here) else task.path)


def nop_problems(result: RolloutResult) -> Iterator[str]:
    """Yield what is wrong with a task that did this with an agent that did nothing."""
    if result.status == "passed":
        yield f"nop passes: the verifier gives {result.reward:g} to an agent that did nothing"
    elif result.status == "error":
        yield from _error("nop", result)


def oracle_problems(result: RolloutResult) -> Iterator[str]:
    """Yield what is wrong with a task that did this with its own solution."""
    if result.status == "error":
        yield from _error("oracle", result)
    elif result.status == "failed":
        parts = [f"oracle fails: reward {result.reward:g} is below {result.threshold:g}"]
        if result.checks is not None and result.checks.failing:
            parts.append(f"failing: {', '.join(result.checks.failing[:5])}")
        parts += [result.agent_detail] if result.agent_detail else []
        yield " · ".join([*parts, str(result.rollout_dir)])


def _error(agent: str, result: RolloutResult) -> Iterator[str]:
    error = result.error
    reason = "no reward and no error" if error is None else f"{error.category} in {error.phase}: {error.message}"
    yield f"{agent}: {one_line(reason, _REASON_CHARS)} · {result.rollout_dir}"


def _cell(result: RolloutResult) -> str:
    if result.status in ("error", "skipped"):
        return result.status
    return f"{result.reward:.2f}"
