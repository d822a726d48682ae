"""`bf regrade`: the present tests on what the agents of a job left, without paying the agents again."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError, UsageError
from pytest_benchflow.core.text import counted, one_line

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json
    from pytest_benchflow.rollout import Resources, RolloutResult


def add_regrade(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command `bf regrade`."""
    parser = commands.add_parser(
        "regrade",
        help="verify a job again with the present tests, from the workspaces that --bf-save-workspace kept",
        epilog="exit status: 0 all were verified again; 1 some could not be; 2 wrong usage",
    )
    parser.add_argument("job", type=Path, metavar="JOB", help="a job's name or directory, or that of one rollout")
    parser.add_argument("--task", action="append", default=[], metavar="NAME", help="only this task; repeatable")
    parser.add_argument("--sandbox", metavar="NAME", help="another sandbox than the rollouts ran in")
    parser.add_argument(
        "--verifier-env", action="append", default=[], metavar="K=V", help="as --bf-verifier-env; repeatable"
    )
    parser.add_argument("-c", "--concurrency", type=int, metavar="N", help="how many at a time (default: one per CPU)")
    parser.add_argument("--json", action="store_true", help="what was and what is, as JSON")
    parser.set_defaults(action=_regrade_job)


@dataclass(frozen=True, slots=True)
class Regrading:
    """One rollout with its results before and now, or why there is no other."""

    before: RolloutResult
    after: RolloutResult | None = None
    problem: str | None = None

    @property
    def word(self) -> str:
        """What came of it."""
        if self.after is None:
            return "kept"
        same = (self.after.status, self.after.rewards) == (self.before.status, self.before.rewards)
        return "same" if same else "changed"

    @property
    def line(self) -> str:
        """The rollout in one line."""
        who = "/".join(part for part in (self.before.agent, self.before.model, self.before.scene) if part)
        name = f"{self.word:8} {self.before.task_name} {who}"
        if self.after is None:
            return f"{name}  {_said(self.before)}  {self.problem}"
        tests = "" if self.after.task_digest == self.before.task_digest else "  the task has changed"
        arrow = f"{_said(self.before)} → {_said(self.after)}" if self.word == "changed" else _said(self.after)
        return f"{name}  {arrow}{tests}  {self.after.rollout_dir}"

    def as_json(self) -> dict[str, Json]:
        """The rollout as JSON."""
        return {
            "rollout": self.before.rollout_name,
            "task": self.before.task_name,
            "agent": self.before.agent,
            "model": self.before.model,
            "outcome": self.word,
            "before": _facts(self.before),
            "after": None if self.after is None else _facts(self.after),
            "problem": self.problem,
        }


def _facts(result: RolloutResult) -> dict[str, Json]:
    return {
        "status": result.status,
        "reward": result.reward,
        "rewards": None if result.rewards is None else {**result.rewards},
        "error": None if result.error is None else result.error.message,
        "task_digest": result.task_digest,
        "directory": str(result.rollout_dir),
    }


def _said(result: RolloutResult) -> str:
    if result.error is not None:
        return f"{result.error.category} error ({one_line(result.error.message, 80)})"
    return f"{result.status} {result.reward:g}" if result.reward is not None else result.status


def _regrade_job(options: argparse.Namespace) -> int:
    from pytest_benchflow.core.settings import Source, Variables
    from pytest_benchflow.jobs import latest_attempts, read_results

    job = _directory(options.job)
    results = latest_attempts(read_results(job).results)
    chosen = [result for result in results if not options.task or result.task_name in options.task]
    if not chosen:
        which = f" of {', '.join(options.task)}" if options.task else ""
        raise UsageError(f"there is no result{which} in {job}", advice="name a job, and tasks that it has")
    variables = Variables().read(options.verifier_env, Source("--verifier-env"))
    width = options.concurrency or os.cpu_count() or 1
    try:
        done = asyncio.run(_regrade_all(chosen, options.sandbox, variables, width, quiet=options.json))
    except KeyboardInterrupt:
        print("interrupted; results so far are in the regrades/ of their rollouts", file=sys.stderr)
        return 130
    counts = {word: sum(each.word == word for each in done) for word in ("changed", "same", "kept")}
    broken = sum(each.after is not None and each.after.error is not None for each in done)
    if options.json:
        rollouts: list[Json] = [each.as_json() for each in done]
        print(json.dumps({"job": str(job), **counts, "errors": broken, "rollouts": rollouts}, indent=2))
    else:
        unable = f", {counts['kept']} could not be verified again" if counts["kept"] else ""
        print(f"{counted(len(done), 'rollout')}: {counts['changed']} changed, {counts['same']} the same{unable}")
    return 1 if counts["kept"] or broken else 0


def _directory(job: Path) -> Path:
    """Return the directory that an argument means; a name is that of a job in `jobs`."""
    named = Path("jobs") / job
    return named if len(job.parts) == 1 and not job.exists() and named.is_dir() else job


async def _regrade_all(
    results: Sequence[RolloutResult], sandbox: str | None, variables: dict[str, str], width: int, *, quiet: bool
) -> list[Regrading]:
    from pytest_benchflow.rollout import Resources

    resources, places = Resources.with_defaults(), asyncio.Semaphore(max(1, width))

    async def one(result: RolloutResult) -> Regrading:
        async with places:
            done = await _regrade_one(result, sandbox, variables, resources)
        if not quiet:
            print(done.line, flush=True)
        return done

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(result)) for result in results]
        return [task.result() for task in tasks]
    finally:
        await resources.aclose()


async def _regrade_one(
    result: RolloutResult, sandbox: str | None, variables: dict[str, str], resources: Resources
) -> Regrading:
    from pytest_benchflow.rollout import regrade, regrade_config
    from pytest_benchflow.tasks import load_task

    try:
        task = load_task(Path(result.task_path))
        assert result.rollout_dir is not None
        config = regrade_config(result.rollout_dir, task.path, sandbox=sandbox, verifier_env=variables)
        return Regrading(result, await regrade(result, task, config, resources))
    except BenchflowError as error:
        return Regrading(result, problem=str(error))
