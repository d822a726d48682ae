"""`bf run` and `bf metrics`: run a job file, and look at what a job has left."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError
from pytest_benchflow.core.text import one_line

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json
    from pytest_benchflow.rollout import RolloutResult


_SHOWN = (
    "total",
    "passed",
    "failed",
    "errored",
    "verifier_errored",
    "skipped",
    "cancelled",
    "pass_rate",
    "mean_reward",
)
_ALSO = ("avg_tool_calls", "avg_duration_sec", "total_tokens", "total_cost_usd")


def run_job(file: Path, *, job_name: str | None, resume: bool, resume_anyway: bool, retries: int | None) -> int:
    """Run a job file; 0 when every rollout was scored or skipped, 1 when some were not, 2 when nothing could start."""
    from pytest_benchflow.jobs import Evaluation, newest_job

    try:
        evaluation = Evaluation.from_yaml(
            file, job_name=job_name, on_result=_tell, resume=resume, resume_anyway=resume_anyway, retries=retries
        )
        if resume and not (evaluation.job_name or evaluation.suggested_name):
            evaluation.job_name = newest_job(evaluation.jobs_dir)
        for note in evaluation.notes:
            print(f"{note} (warning)", file=sys.stderr)
        result = asyncio.run(evaluation.run())
    except BenchflowError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; continue it with bf run {file} --resume", file=sys.stderr)
        return 130
    print(f"{result.passed} of {result.total} passed ({result.score:.1%}), results in {result.job_dir}")
    return 1 if result.errored or result.verifier_errored else 0


def show_metrics(directory: Path, *, benchmark: str, agent: str, model: str, as_json: bool) -> int:
    """Print the metrics of a finished job, as a table or as JSON; 2 if it holds no result."""
    from pytest_benchflow.jobs import collect_metrics

    metrics = collect_metrics(directory, benchmark, agent, model)
    for path in metrics.unreadable:
        print(f"{path} cannot be read", file=sys.stderr)
    for path in metrics.unfinished:
        print(f"{path} has no result: it was killed, or still runs", file=sys.stderr)
    if not metrics.results:
        print(f"there is no result in {directory}; name a job, or a folder of jobs", file=sys.stderr)
        return 2
    summary = metrics.summary()
    print(json.dumps(summary, indent=2) if as_json else "\n".join(_lines(metrics.results, summary)))
    return 0


def _tell(name: str, result: RolloutResult) -> None:
    why = f"reward {result.reward:g}" if result.reward is not None else result.skipped or ""
    if result.error is not None:
        why = f"{result.error.category} in {result.error.phase}: {one_line(result.error.message)}"
    print(f"{result.status:7} {name}  {why}", flush=True)


def _lines(results: Sequence[RolloutResult], summary: dict[str, Json]) -> list[str]:
    """Return the table that pytest shows at the end of a run, and what else was counted."""
    from pytest_benchflow.reporting import entries_of, group, summary_lines

    rows = [(key.replace("_", " "), _text(summary[key])) for key in (*_SHOWN, *_ALSO) if summary[key] is not None]
    if summary["cost_is_partial"]:
        rows = [(name, f"{text} (partial)" if name == "total cost usd" else text) for name, text in rows]
    for key in ("pass_rate_interval", "mean_reward_interval"):
        if (interval := summary[key]) is not None:
            assert isinstance(interval, list)
            rows.append((key.replace("_", " "), "–".join(map(_text, interval))))
    width = max(len(name) for name, _ in rows)
    heading = " ".join(str(summary[key]) for key in ("benchmark", "agent", "model") if summary[key])
    table = summary_lines(group(entries_of(results)))
    return [heading, *table, *(f"  {name.ljust(width)}  {text}" for name, text in rows)]


def _text(value: Json) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
