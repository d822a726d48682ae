"""`bf run`, `bf job` and `bf eval`: run tasks without pytest, with the options that earlier tools had for it.

All three are one command: a task, a folder of tasks, or a job file becomes an `Evaluation`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError, UsageError
from pytest_benchflow.core.text import one_line

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

    from pytest_benchflow.jobs import Evaluation, EvaluationConfig, EvaluationResult
    from pytest_benchflow.rollout import RolloutResult

_EXIT = """exit status: 0 all was scored, whatever the rewards; 1 something could not start or broke; 2 wrong usage;
with gates, 0 if they pass and 1 if not"""
#: What a job file says itself; beside a file these options would be ignored.
_OF_FILE = {
    "agent": "--agent",
    "model": "--model",
    "sandbox": "--sandbox",
    "prompts": "--prompt",
    "agent_env": "--agent-env",
    "skills_dir": "--skills-dir",
    "skill_mode": "--skill-mode",
    "reasoning_effort": "--reasoning-effort",
    "sandbox_user": "--sandbox-user",
    "sandbox_setup_timeout": "--sandbox-setup-timeout",
    "agent_idle_timeout": "--agent-idle-timeout",
    "loop_strategy": "--loop-strategy",
    "context_root": "--context-root",
    "base_image_override": "--base-image-override",
    "concurrency": "--concurrency",
    "trials": "--trials",
    "include_tasks": "--include",
    "exclude_tasks": "--exclude",
    "jobs_dir": "--jobs-dir",
    "source_repo": "--source-repo",
    "gates": "--gate",
    "max_cost": "--max-cost",
    "price": "--price",
    "stop_when_decided": "--stop-when-decided",
    "confidence": "--confidence",
}


def add_evaluations(commands: _Commands) -> None:
    """Add the commands."""
    run = commands.add_parser(
        "run",
        help="run a task, a folder of tasks or a job file without pytest",
        epilog=_EXIT,
    )
    run.add_argument("path", nargs="?", type=Path, metavar="PATH", help="a job file, a task, or a folder of tasks")
    _add_options(run)
    _add_job(commands, "job")
    verbs = commands.add_parser("eval", help="bf job under its later names").add_subparsers(dest="verb", required=True)
    for verb in ("create", "run"):
        _add_job(verbs, verb)
    listed = verbs.add_parser("list", help="list jobs and how they went, the newest first")
    listed.add_argument("directory", nargs="?", type=Path, default=Path("jobs"), metavar="DIR", help="(default: jobs)")
    listed.add_argument("--json", action="store_true", help="as JSON")
    listed.set_defaults(action=_list_jobs)


def _add_job(commands: _Commands, name: str) -> None:
    parser = commands.add_parser(
        name,
        help="run many tasks without pytest",
        epilog=_EXIT,
    )
    parser.add_argument("-f", "--config", dest="path", type=Path, metavar="FILE", help="a job file")
    _add_options(parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what")
    what.add_argument(
        "-t", "--task-dir", "--tasks-dir", dest="tasks", type=Path, metavar="DIR", help="a task, or a folder of tasks"
    )
    what.add_argument(
        "--include", dest="include_tasks", action="append", metavar="NAME", help="only these tasks; * and ?"
    )
    what.add_argument("--exclude", dest="exclude_tasks", action="append", metavar="NAME", help="not these")
    what.add_argument("--source-repo", metavar="ORG/REPO", help="take the tasks from a git repository")
    what.add_argument("--source-path", metavar="PATH", help="where in it")
    what.add_argument("--source-ref", metavar="REF", help="branch, tag or commit")
    who = parser.add_argument_group("who")
    who.add_argument("-a", "--agent", metavar="NAME", help="the agent (default: claude-agent-acp)")
    who.add_argument("-m", "--model", metavar="ID", help="its model")
    who.add_argument("--reasoning-effort", "--effort", metavar="LEVEL", help="as --bf-effort")
    who.add_argument("-p", "--prompt", dest="prompts", action="append", metavar="TEXT", help="instead of the task's")
    who.add_argument("--ae", "--agent-env", dest="agent_env", action="append", metavar="K=V", help="extra environment")
    who.add_argument("-s", "--skills-dir", type=Path, metavar="DIR", help="skills that the agent is given")
    who.add_argument("--skill-mode", choices=("no-skill", "with-skill"), help="whether it is given skills")
    who.add_argument("--agent-idle-timeout", type=float, metavar="S", help="as --bf-agent-idle-timeout; 0 for none")
    who.add_argument("--loop-strategy", metavar="WORDS", help="verify-retry:k=3 or self-review:k=3")
    where = parser.add_argument_group("where")
    where.add_argument(
        "-e", "--env", "--environment", "-b", "--backend", "--sandbox", dest="sandbox", metavar="NAME",
        help="local, docker …, as --bf-sandbox",
    )  # fmt: skip
    where.add_argument("--sandbox-user", metavar="NAME", help="who the agent is; none is root")
    where.add_argument("--sandbox-setup-timeout", type=float, metavar="S", help="seconds for making that user")
    where.add_argument("--context-root", type=Path, metavar="DIR", help="as --bf-context-root")
    where.add_argument("--base-image-override", metavar="IMAGE", help="as --bf-base-image-override")
    how = parser.add_argument_group("how")
    how.add_argument("-c", "--concurrency", type=_count, metavar="N", help="rollouts at a time (default: 4)")
    how.add_argument("--trials", type=_count, metavar="K", help="repetitions of each task")
    how.add_argument("--retries", type=_count, metavar="N", help="as --bf-retries, instead of a file's own")
    how.add_argument("-o", "--jobs-dir", type=Path, metavar="DIR", help="where results go (default: jobs)")
    how.add_argument("--job-name", metavar="NAME", help="name of the job's directory")
    how.add_argument("--resume", action="store_true", help="continue the job of that name, or the newest one")
    how.add_argument(
        "--resume-anyway", action="store_true", help="also if agents, tasks or settings have changed since"
    )
    how.add_argument("--gate", dest="gates", action="append", metavar="EXPR", help="as --bf-gate; repeatable")
    how.add_argument("--max-cost", type=float, metavar="USD", help="as --bf-max-cost")
    how.add_argument("--price", action="append", metavar="MODEL=IN/OUT", help="as --bf-price; repeatable")
    how.add_argument("--stop-when-decided", action="store_true", default=None, help="as --bf-stop-when-decided")
    how.add_argument("--confidence", type=float, metavar="P", help="as --bf-confidence")
    how.add_argument("--json", action="store_true", help="print the numbers as JSON, and progress to stderr")
    parser.set_defaults(action=_run, parser=parser)


def _run(options: argparse.Namespace) -> int:
    from pytest_benchflow.jobs import newest_job
    from pytest_benchflow.reporting import judge

    try:
        evaluation = _evaluation(options)
        if evaluation.resume and not (evaluation.job_name or evaluation.suggested_name):
            evaluation.job_name = newest_job(evaluation.jobs_dir)
        for note in evaluation.notes:
            print(f"{note} (warning)", file=sys.stderr)
        result = asyncio.run(evaluation.run())
    except BenchflowError as error:
        print(f"bf: {_with_own_options(str(error), options.parser)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command with --resume continues it", file=sys.stderr)
        return 130
    if options.json:
        print(json.dumps({"job_dir": str(result.job_dir), **result.metrics.summary()}, indent=2))
    else:
        print("\n".join(_ending(result)))
    judgement = judge(
        result.config.parsed_gates,
        result.outcomes,
        status=1 if result.errored or result.verifier_errored else 0,
        tests=result.early_verdicts,
    )
    for line in judgement.lines():
        print(line, file=sys.stderr if options.json else sys.stdout)
    return judgement.exit_status


def _with_own_options(message: str, parser: argparse.ArgumentParser) -> str:
    """Return a message that names pytest's options with those of the command, where it has them."""
    own = {word.removeprefix("--") for action in parser._actions for word in action.option_strings}
    return re.sub(r"--bf-([a-z-]+)", lambda match: f"--{match[1]}" if match[1] in own else match[0], message)


def _evaluation(options: argparse.Namespace) -> Evaluation:
    from pytest_benchflow.jobs import Evaluation

    given = {name: value for name, value in vars(options).items() if value is not None}
    tasks, path = given.get("tasks"), given.get("path")
    if path is not None and path.is_dir():
        tasks, path = tasks or path, None
    sources = [each for each in (tasks, path, given.get("source_repo")) if each is not None]
    if len(sources) != 1:
        many = "name one thing to run: a task or folder with -t, a job file, or --source-repo"
        options.parser.error(f"{' and '.join(map(str, sources))}: {many}" if sources else many)
    (source,) = sources
    if isinstance(source, Path) and not source.exists():
        raise UsageError(f"{source} does not exist", advice="name a task, a folder of tasks, or a job file")
    progress = _Progress(sys.stderr if options.json else sys.stdout)
    how = {"job_name": options.job_name, "on_result": progress, "resume": options.resume or options.resume_anyway}
    how["resume_anyway"] = options.resume_anyway
    if path is not None:
        if ignored := [flag for name, flag in _OF_FILE.items() if name in given]:
            options.parser.error(f"{', '.join(ignored)} would have no effect: {path} says it")
        return Evaluation.from_yaml(path, retries=options.retries, **how)
    config, directory = _config(given), tasks or _fetched(options)
    return Evaluation(directory, options.jobs_dir or "jobs", config, **how)


def _config(given: dict[str, object]) -> EvaluationConfig:
    from pytest_benchflow.core.settings import Source, Variables
    from pytest_benchflow.jobs import EvaluationConfig, retry_policy

    names = {*_OF_FILE} - {"agent_env", "jobs_dir", "source_repo"}
    fields = {name: value for name, value in given.items() if name in names}
    if "agent_env" in given:
        fields["agent_env"] = Variables().read(given["agent_env"], Source("--agent-env"))
    if given.get("sandbox_user") in ("none", "root"):
        fields["sandbox_user"] = None
    if "skills_dir" in fields:
        fields.setdefault("skill_mode", "with-skill")
    retries = given.get("retries")
    fields["retry"] = retry_policy(None, retries if isinstance(retries, int) else None)
    return EvaluationConfig(**fields)  # type: ignore[arg-type]


def _fetched(options: argparse.Namespace) -> Path:
    from pytest_benchflow.core.files import cache_directory
    from pytest_benchflow.reporting import work_shown
    from pytest_benchflow.tasks import fetch_source, parse_source

    ref = f"@{options.source_ref}" if options.source_ref else ""
    path = f":{options.source_path}" if options.source_path else ""
    with work_shown(1):
        return fetch_source(parse_source(f"{options.source_repo}{ref}{path}"), cache_directory() / "sources").path


class _Progress:
    """Tells of each result as it comes."""

    def __init__(self, file: object) -> None:
        self._file = file

    def __call__(self, name: str, result: RolloutResult) -> None:
        why = f"reward {result.reward:g}" if result.reward is not None else result.skipped or ""
        if result.error is not None:
            why = f"{result.error.category} in {result.error.phase}: {one_line(result.error.message, 400)}"
        print(f"{result.status:7} {one_line(name)}  {why}", file=self._file, flush=True)  # type: ignore[call-overload]


def _ending(result: EvaluationResult) -> Sequence[str]:
    lines = [f"{result.passed} of {result.total} passed ({result.score:.1%}), results in {result.job_dir}"]
    if result.total == 1:
        (only,) = result.results.values()
        who = " with ".join(part for part in (only.agent, only.model) if part)
        rewards = ", ".join(f"{name} {value:g}" for name, value in (only.rewards or {}).items()) or "no reward"
        lines.insert(0, f"{only.task_name} · {who} · {only.n_tool_calls} tool calls · {rewards}")
    return lines


def _list_jobs(options: argparse.Namespace) -> int:
    from pytest_benchflow.jobs import Tally, job_names, latest_attempts, read_results

    names = job_names(options.directory)
    if not names:
        raise UsageError(f"there is no job in {options.directory}", advice="name the directory that jobs are in")
    rows: list[dict[str, object]] = []
    for name in names:
        tally = Tally.of(latest_attempts(read_results(options.directory / name).results))
        rows.append(
            {
                "job": name,
                "rollouts": len(tally.results),
                "passed": tally.n("passed"),
                "errors": tally.n("error"),
                "mean_reward": tally.mean_reward,
                "cost_usd": tally.cost_usd,
            }
        )
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        _print_table(rows)
    return 0


def _print_table(rows: Sequence[dict[str, object]]) -> None:
    cells = [[name.replace("_", " ") for name in rows[0]], *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:.2f}" if isinstance(value, float) else one_line(str(value))


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)
