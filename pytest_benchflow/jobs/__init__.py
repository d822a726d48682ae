"""Jobs: many rollouts, their concurrency, directory, retry and statistics."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pytest_benchflow.jobs.directory import claim_job_directory
from pytest_benchflow.jobs.engine import Engine
from pytest_benchflow.jobs.statistics import (
    bootstrap_interval,
    mean,
    pass_all_k,
    pass_at_k,
    percentile,
    wilson_interval,
)

if TYPE_CHECKING:
    from pytest_benchflow.jobs.evaluation import Evaluation, ResumeMismatch
    from pytest_benchflow.jobs.evaluation_config import EvaluationConfig
    from pytest_benchflow.jobs.evaluation_result import EvaluationResult, TaskFailure
    from pytest_benchflow.jobs.metrics import BenchmarkMetrics, TaskMetrics, collect_metrics
    from pytest_benchflow.jobs.retry import RetryConfig
    from pytest_benchflow.jobs.stored import bucket, last_word, read_results

_HOMES = {
    "BenchmarkMetrics": "metrics",
    "Evaluation": "evaluation",
    "EvaluationConfig": "evaluation_config",
    "EvaluationResult": "evaluation_result",
    "ResumeMismatch": "evaluation",
    "RetryConfig": "retry",
    "TaskFailure": "evaluation_result",
    "TaskMetrics": "metrics",
    "bucket": "stored",
    "collect_metrics": "metrics",
    "last_word": "stored",
    "read_results": "stored",
}

__all__ = [
    "BenchmarkMetrics",
    "Engine",
    "Evaluation",
    "EvaluationConfig",
    "EvaluationResult",
    "ResumeMismatch",
    "RetryConfig",
    "TaskFailure",
    "TaskMetrics",
    "bootstrap_interval",
    "bucket",
    "claim_job_directory",
    "collect_metrics",
    "last_word",
    "mean",
    "pass_all_k",
    "pass_at_k",
    "percentile",
    "read_results",
    "wilson_interval",
]


def __getattr__(name: str) -> object:
    """Import what only finished jobs and whole evaluations need when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
